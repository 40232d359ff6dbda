package config_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

const reference = "../docs/configuration.md"

const preamble = `# Configuration reference

<!-- Made of the comments in config/*.go by "go test ./config -update". Do not edit. -->

A complete, commented example is [config/bridge.example.yaml](../config/bridge.example.yaml); for editors there is a JSON Schema,
[config/bridge.schema.json](../config/bridge.schema.json). Nothing of it is required:
` + "`bridge run`" + ` without a file watches everything but Leases and Events, runs a NATS
JetStream server of its own, and keeps a history of a week that can be [asked](history.md).

**Where values come from.** A flag beats an environment variable, a variable beats the file, the file beats the default. A key that is not in this
reference is an error, wherever it is; so is a setting that has no effect beside another one. ` + "`bridge validate`" + ` reports all
problems at once.

**Variables.** Every key that holds one value or a list of texts has a variable: ` + "`state.dir`" + ` is ` + "`BRIDGE_STATE_DIR`" + `, ` + "`log.level`" + ` is ` + "`BRIDGE_LOG_LEVEL`" + `.
Lists of texts are separated by commas. Keys in informers and sinks go by index or by name, where the name wins:
` + "`BRIDGE_INFORMERS_0_LABEL_SELECTOR`, `BRIDGE_SINKS_LAKE_KAFKA_BROKERS=a:9092,b:9092`" + `. They change elements that the
file (or the default) has, and don't add any; bindings in an informer go by index. ` + "`createTopics.config`" + ` has no variable. An empty variable counts as not
set. A variable that begins like a section and names no key is an error.

**In the file.** ` + "`${NAME}`" + ` in a value is replaced by the environment variable ` + "`NAME`" + `, which must be set; ` + "`$${`" + ` is a literal ` + "`${`" + `. Durations are written ` +
	"`500ms`, `30s`, `24h`, `7d`, `2w`; sizes `64MiB`, `10GiB`, `500kB`" + `. A list in the file replaces the default list.

**Attributes of events** are listed in [consumers.md](consumers.md#attributes). ` + "`manager`" + ` is a field manager: a name that the client chose, not an
authenticated user. [Who changed an object](consumers.md#who-changed-an-object) says when it is absent, and how to join the audit log.

`

func TestTheReferenceIsUpToDate(t *testing.T) {
	var out strings.Builder
	out.WriteString(preamble)
	r := &referenceWriter{t: t, out: &out, comments: comments(t)}
	r.section("", reflect.TypeFor[config.Config]())
	golden(t, reference, out.String())
}

// comments maps "Type.Field", and "Type", to their comments in the source.
func comments(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || len(decl.Specs) != 1 {
				return true
			}
			if spec, ok := decl.Specs[0].(*ast.TypeSpec); ok {
				found[spec.Name.Name] = flat(decl.Doc)
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						if f.Tag == nil {
							continue // not a key
						}
						found[spec.Name.Name+"."+f.Names[0].Name] = flat(f.Doc)
					}
				}
			}
			return true
		})
	}
	return found
}

func flat(group *ast.CommentGroup) string {
	return strings.Join(strings.Fields(group.Text()), " ")
}

type referenceWriter struct {
	t        *testing.T
	out      *strings.Builder
	comments map[string]string
}

// section writes a heading and a table of the keys, then the sections below it.
func (r *referenceWriter) section(path string, typ reflect.Type) {
	title := "Top level"
	if path != "" {
		title = "`" + path + "`"
	}
	last := strings.TrimSuffix(path[strings.LastIndexByte(path, '.')+1:], "[]")
	intro := r.sentence(typ.Name())
	if path != "" && !strings.HasSuffix(path, "[]") {
		intro = keyForName(last, typ.Name(), intro)
	}
	fmt.Fprintf(r.out, "## %s\n\n%s\n\n", title, intro)
	var below []func()
	if typ.NumField() > 0 {
		r.out.WriteString("| key | type | default | meaning |\n| --- | --- | --- | --- |\n")
	}
	for f := range typ.Fields() {
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		comment := r.comments[typ.Name()+"."+f.Name]
		if comment == "" {
			r.t.Errorf("%s.%s has no comment", typ.Name(), f.Name)
		}
		at := strings.TrimPrefix(path+"."+key, ".")
		inner, list := f.Type, ""
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				list = "[]"
			}
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.NumField() > 0 {
			below = append(below, func() { r.section(at+list, inner) })
		}
		fmt.Fprintf(r.out, "| `%s` | %s | %s | %s |\n", key, typeName(f), defaultOf(f), escapeCell(keyForName(key, f.Name, comment)))
	}
	r.out.WriteString("\n")
	for _, write := range below {
		write()
	}
}

// sentence is the comment of a type.
func (r *referenceWriter) sentence(name string) string {
	text := r.comments[name]
	if text == "" {
		r.t.Errorf("type %s has no comment", name)
	}
	return text
}

// keyForName puts the key in the place of the Go name that a comment begins with.
func keyForName(key, name, comment string) string {
	if rest, ok := strings.CutPrefix(comment, name+" "); ok {
		return "`" + key + "` " + rest
	}
	return comment
}

func escapeCell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func typeName(f reflect.StructField) string {
	if allowed := f.Tag.Get("oneof"); allowed != "" {
		return strings.Join(strings.Fields(allowed), ", ")
	}
	switch f.Type.String() {
	case "time.Duration":
		return "duration"
	case "config.Size":
		return "size"
	case "config.Secret":
		return "secret"
	case "config.URL":
		return "URL"
	case "[]string":
		return "list of strings"
	case "[]config.URL":
		return "list of URLs"
	case "map[string]string", "map[string]config.Secret":
		return "map of strings"
	}
	switch f.Type.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice:
		return "list"
	}
	return "map"
}

func defaultOf(f reflect.StructField) string {
	value, ok := f.Tag.Lookup("default")
	switch {
	case !ok && f.Type.Kind() == reflect.Bool:
		return "`false`"
	case !ok:
		return ""
	}
	return "`" + value + "`"
}

// A default that a comment repeats by hand will one day differ, so comments leave it to the tag.
func TestCommentsAreSentences(t *testing.T) {
	for name, text := range comments(t) {
		if text != "" && !strings.HasSuffix(text, ".") {
			t.Errorf("the comment of %s does not end like a sentence: %s", name, strconv.Quote(text))
		}
	}
}
