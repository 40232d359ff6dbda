package config_test

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

const (
	referenceDir = "../docs/configuration"
	referenceTop = referenceDir + ".md"
	madeOf       = `<!-- Made of the comments of the structs in config and internal/sinks, and of config/testdata/reference,
     by "go test ./config -update". Do not edit. -->
`
)

const preamble = `# Configuration

` + madeOf + `
Each section has a page, which begins with examples:

| section | meaning |
| --- | --- |
%s
Each example is a whole configuration: every key may be left out, and ` + "`bridge run`" + ` without a
file streams everything but Leases and Events into a NATS JetStream server of its own, and keeps
every version for a week, at most 1 GiB, in ` + "`history`" + ` below the state directory.
[config/bridge.example.yaml](../config/bridge.example.yaml) has every key in one file. Editors take
the JSON Schema [config/bridge.schema.json](../config/bridge.schema.json).

` + "`bridge validate bridge.yaml`" + ` reports every problem at once, each with its line. A key that
is not on these pages is an error. So is a setting that has no effect beside another one.

| question | answer |
| --- | --- |
| which value is used | a flag, else an environment variable, else the file, else the default |
| how is a variable named | ` + "`state.dir` is `BRIDGE_STATE_DIR`" + `; of informers and sinks by name or by index: ` +
	"`BRIDGE_SINKS_LAKE_KAFKA_BROKERS=a:9092,b:9092`, `BRIDGE_INFORMERS_0_LABEL_SELECTOR`" + ` |
| what can variables not do | add informers or sinks; set ` + "`createTopics.config`" + `. Bindings of an informer go by index. An empty variable counts as not set; one that names no key is an error |
| how do secrets get in | files (` + "`passwordFile`, `credsFile`, …" + `), or ` + "`${NAME}`" + ` in a value, which is replaced by the variable ` + "`NAME`" + `; ` + "`$${`" + ` is a literal ` + "`${`" + ` |
| how are values written | durations ` + "`500ms`, `30s`, `24h`, `7d`, `2w`; sizes `64MiB`, `10GiB`, `500kB`" + ` |
| do lists add up | no: a list in the file replaces the default |

The attributes of events are in [consumers.md](consumers.md#attributes). Who changed an object is a
field manager there: a name that the client chose, not an authenticated user. The user is
what [bridge who](consumers.md#who-changed-an-object) finds in the audit log.

`

// The reference is up to date.
func TestReference(t *testing.T) {
	r := &referenceWriter{t: t, comments: comments(t), examples: map[string]bool{}, pages: map[string]*strings.Builder{}}
	r.section("", reflect.TypeFor[config.Config]())
	top := fmt.Sprintf(preamble, r.list.String()) + r.pages[""].String()
	golden(t, referenceTop, top)
	for page, text := range r.pages {
		if page != "" {
			golden(t, filepath.Join(referenceDir, page+".md"), text.String())
		}
	}
	if files, err := filepath.Glob(referenceDir + "/*"); err != nil || len(files) != len(r.pages)-1 {
		t.Errorf("%v has other files than %v: %v", files, slices.Sorted(maps.Keys(r.pages)), err)
	}
	files, err := filepath.Glob("testdata/reference/*.yaml")
	if err != nil || len(files) != len(r.examples) {
		t.Errorf("of the examples %v only %v are of a section: %v", files, r.examples, err)
	}
}

// sections are the directories with structs that are sections of the configuration, but for those
// of sinks below ../internal/sinks.
var sections = []string{".", "../internal/sinks", "../internal/history/audit"}

// comments maps the name of a type with that of its package, as reflect has it, and "Type.Field",
// to their comments in the source.
func comments(t *testing.T) map[string]string {
	t.Helper()
	below, err := filepath.Glob("../internal/sinks/*")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, dir := range slices.Concat(sections, below) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				readComments(t, name, found)
			}
		}
	}
	return found
}

func readComments(t *testing.T, name string, found map[string]string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		decl, ok := decl.(*ast.GenDecl)
		if !ok || len(decl.Specs) != 1 {
			continue
		}
		spec, ok := decl.Specs[0].(*ast.TypeSpec)
		if !ok {
			continue
		}
		s, ok := spec.Type.(*ast.StructType)
		if !ok || !slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool { return f.Tag != nil }) {
			continue // no section
		}
		of := file.Name.Name + "." + spec.Name.Name
		found[of] = about(decl.Doc)
		for _, f := range s.Fields.List {
			if f.Tag != nil { // a key
				found[of+"."+f.Names[0].Name] = flat(f.Doc)
			}
		}
	}
}

// about is the comment of a type. Of a sink's Config the first paragraph is for who reads the code.
func about(doc *ast.CommentGroup) string {
	text := doc.Text()
	if first, rest, found := strings.Cut(text, "\n\n"); found && strings.HasPrefix(first, "Config is the section ") {
		text = rest
	}
	return strings.Join(strings.Fields(text), " ")
}

func flat(group *ast.CommentGroup) string {
	return strings.Join(strings.Fields(group.Text()), " ")
}

type referenceWriter struct {
	t        *testing.T
	pages    map[string]*strings.Builder // by name, "" for the top level
	list     strings.Builder             // of the pages
	out      *strings.Builder            // the page of the section
	comments map[string]string
	examples map[string]bool // files that were written
}

// pageOf is the page of a section: that of its key at the top level, or of the kind of sink.
func pageOf(path string) string {
	keys := strings.Split(strings.ReplaceAll(path, "[]", ""), ".")
	if len(keys) > 1 && keys[0] == "sinks" && keys[1] != "rateLimit" && keys[1] != "retry" {
		return keys[1]
	}
	return keys[0]
}

// linkTo is the link to a section. On another page it is the first one.
func linkTo(path, from string) string {
	page := pageOf(path)
	switch {
	case page == pageOf(from):
		return "#" + strings.ToLower(strings.NewReplacer(".", "", "[]", "").Replace(path))
	case from == "":
		return "configuration/" + page + ".md"
	}
	return page + ".md"
}

// section writes a heading and a table of the keys, then the sections below it.
func (r *referenceWriter) section(path string, typ reflect.Type) {
	intro := r.sentence(typ.String())
	if path != "" && !strings.HasSuffix(path, "[]") {
		intro = keyForName(path[strings.LastIndexByte(path, '.')+1:], typ.Name(), intro)
	}
	page := pageOf(path)
	switch r.out = r.pages[page]; {
	case path == "":
		r.out = &strings.Builder{}
		r.out.WriteString("## Top level\n\n")
	case r.out == nil:
		r.out = &strings.Builder{}
		fmt.Fprintf(r.out, "# Configuration: `%s`\n\n%s\n[All sections](../configuration.md)\n\n", path, madeOf)
	default:
		fmt.Fprintf(r.out, "## `%s`\n\n", path)
	}
	r.pages[page] = r.out
	r.out.WriteString(linked(path, intro) + "\n\n")
	r.example(path)
	var below []func()
	if typ.NumField() > 0 {
		r.out.WriteString("| key | type | default | meaning |\n| --- | --- | --- | --- |\n")
	}
	for f := range typ.Fields() {
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		comment := r.comments[typ.String()+"."+f.Name]
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
		comment = keyForName(key, f.Name, comment)
		cell := "`" + key + "`"
		if inner.Kind() == reflect.Struct && inner.NumField() > 0 {
			cell = fmt.Sprintf("[%s](%s)", cell, linkTo(at+list, path))
			below = append(below, func() {
				if to := pageOf(at); to != page {
					r.listed(to, at+list, comment)
				}
				r.section(at+list, inner)
			})
		}
		fmt.Fprintf(r.out, "| %s | %s | %s | %s |\n", cell, typeName(f), defaultOf(f), escapeCell(linked(path, comment)))
	}
	r.out.WriteString("\n")
	for _, write := range below {
		write()
	}
}

// listed adds a page to the list of them, with the first sentence about its section.
func (r *referenceWriter) listed(page, path, comment string) {
	first, _, _ := strings.Cut(comment, ". ")
	fmt.Fprintf(&r.list, "| [`%s`](configuration/%s.md) | %s |\n", path, page, strings.TrimSuffix(first, "."))
}

var otherPage = regexp.MustCompile(`docs/([a-z]+\.md)`)

// linked makes links of the names of other pages in a comment.
func linked(path, comment string) string {
	to := "[$1](../$1)"
	if pageOf(path) == "" {
		to = "[$1]($1)"
	}
	return otherPage.ReplaceAllString(comment, to)
}

// exampleFile is the file with the examples of a section. Some sections have none.
func exampleFile(path string) string {
	name := cmp.Or(strings.ReplaceAll(path, "[]", ""), "top")
	return filepath.Join("testdata", "reference", name+".yaml")
}

// example writes the examples of a section, before the table of its keys.
func (r *referenceWriter) example(path string) {
	text, err := os.ReadFile(exampleFile(path))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.examples[exampleFile(path)] = true
	for one := range strings.SplitSeq(string(text), "---\n") {
		fmt.Fprintf(r.out, "```yaml\n%s```\n\n", one)
	}
}

// TestReferenceExamples: each example is a whole configuration without a mistake.
func TestReferenceExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/reference/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, one := range strings.Split(string(text), "---\n") {
			t.Run(fmt.Sprint(file, " ", i+1), func(t *testing.T) { requireExample(t, file, one) })
		}
	}
}

func requireExample(t *testing.T, file, text string) {
	t.Helper()
	c, err := config.Load(config.Options{File: file, Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	if warnings := c.Warnings(); len(warnings) > 0 {
		t.Errorf("it is warned of: %v", warnings)
	}
}

// TestBrokers: the configurations for each broker are accepted, and the versions that are said to
// be tested are those that the tests have.
func TestBrokers(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read("../docs/brokers.md")
	examples := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(page, -1)
	if len(examples) < 8 {
		t.Errorf("only %d examples were found", len(examples))
	}
	for i, one := range examples {
		t.Run(fmt.Sprint("example ", i+1), func(t *testing.T) { requireExample(t, "brokers.md", one[1]) })
	}
	for broker, in := range map[string][2]string{
		"NATS server ":  {"../go.mod", `nats-server/v2 v(\S+)`},
		"Apache Kafka ": {"../test/kafka/pom.xml", `kafka_2\.13</artifactId>\s*<version>(.*?)<`},
	} {
		version := regexp.MustCompile(in[1]).FindStringSubmatch(read(in[0]))
		if version == nil || !strings.Contains(page, "| "+broker+version[1]) {
			t.Errorf("docs/brokers.md does not say that %s%q is tested, which %s has", broker, version, in[0])
		}
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

// keyForName puts the key in the place of the Go name that a comment begins with. That of a sink's
// section is the name of its kind.
func keyForName(key, name, comment string) string {
	first, rest, _ := strings.Cut(comment, " ")
	if first == name || name == "Config" && strings.EqualFold(first, key) {
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
	case "settings.Size":
		return "size"
	case "settings.Secret":
		return "secret"
	case "settings.URL":
		return "URL"
	case "[]string":
		return "list of strings"
	case "[]settings.URL":
		return "list of URLs"
	case "map[string]string", "map[string]settings.Secret":
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
