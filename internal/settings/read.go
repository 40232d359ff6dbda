package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// reader turns the nodes of a YAML file into the maps that viper merges, checking each against the
// schema on the way. It walks nodes rather than decoded values because only nodes know their line,
// and whether 0123 was meant as a text.
type reader struct {
	*Report
	file       string
	otherNames map[string]string
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): (.*)`)

// parseYAML reads the one document of a file; nil for an empty one.
func (r *reader) parseYAML(data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		r.unparsable(data, err)
		return nil
	}
	// Decoding once refuses keys given twice and anchors that contain themselves or multiply beyond
	// measure.
	if err := doc.Decode(new(any)); err != nil {
		r.syntax(err)
		return nil
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		r.addAt(r.at(&second), "", "more than one YAML document in the file; keep only one")
	}
	return doc.Content[0]
}

// syntax reports an error of the YAML decoder, with its line in the place where all others have it.
func (r *reader) syntax(err error) {
	message, o := err.Error(), Origin{Text: r.file}
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		o.Line, _ = strconv.Atoi(m[1])
		o.Text, message = fmt.Sprintf("%s:%d", r.file, o.Line), m[2]
	}
	r.addAt(o, "", "%s", message)
}

// at is the origin of a node.
func (r *reader) at(n *yaml.Node) Origin {
	if n.Line == 0 {
		return Origin{Text: r.file}
	}
	return Origin{Text: fmt.Sprintf("%s:%d", r.file, n.Line), Line: n.Line}
}

// section reads a mapping as the keys of struct type t. What is wrong is reported and left out.
func (r *reader) section(n *yaml.Node, t reflect.Type, path string) map[string]any {
	n = resolve(n)
	out := map[string]any{}
	if isNull(n) {
		return out
	}
	if n.Kind != yaml.MappingNode {
		r.addAt(r.at(n), path, "want a map, got %s", describe(n))
		return out
	}
	fields := Fields(t)
	for key, value := range entries(n) {
		f := findField(fields, key.Value)
		if f == nil {
			r.addAt(r.at(key), Join(path, key.Value), "unknown key%s", r.unknownKey(key.Value, fields))
			continue
		}
		at := Join(path, f.Key)
		r.Origins[at] = r.at(key)
		if v, ok := r.value(value, f, at); ok {
			out[f.Key] = v
		} else {
			delete(r.Origins, at) // so it gets its default, and nothing more is said of it
		}
	}
	return out
}

// value reads the value of one key. ok is false where there is none: it is wrong, or null, which
// means the default.
func (r *reader) value(n *yaml.Node, f *Field, path string) (v any, ok bool) {
	n = resolve(n)
	switch {
	case f.IsSection:
		return r.section(n, section(f.Type), path), true
	case isNull(n):
		return nil, false
	case f.IsList():
		return r.sections(n, section(f.Type.Elem()), path)
	case f.Type == textsType || f.Type == urlsType:
		return r.texts(n, path)
	case f.Type.Kind() == reflect.Map:
		return r.textMap(n, path)
	}
	return r.scalar(n, f, path)
}

func (r *reader) sections(n *yaml.Node, t reflect.Type, path string) (any, bool) {
	if n.Kind != yaml.SequenceNode {
		r.addAt(r.at(n), path, "want a list, got %s", describe(n))
		return nil, false
	}
	list := []any{}
	isNamed := slices.ContainsFunc(Fields(t), func(f Field) bool { return f.Key == "name" })
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.Origins[at] = r.at(item)
		if item = resolve(item); isNamed && item.Kind == yaml.ScalarNode && itemName.MatchString(item.Value) {
			r.addAt(r.at(item), at, "want a map, got a single value: write {name: %s}", item.Value)
			list = append(list, map[string]any{"name": item.Value})
			continue
		}
		list = append(list, r.section(item, t, at))
	}
	return list, true
}

func (r *reader) texts(n *yaml.Node, path string) (any, bool) {
	if n.Kind != yaml.SequenceNode {
		r.addAt(r.at(n), path, "want a list such as [a, b], got %s", describe(n))
		return nil, false
	}
	list := []string{}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		r.Origins[at] = r.at(item)
		if text, ok := r.text(resolve(item), at, "a string"); ok {
			list = append(list, text)
		}
	}
	return list, true
}

func (r *reader) textMap(n *yaml.Node, path string) (any, bool) {
	if n.Kind != yaml.MappingNode {
		r.addAt(r.at(n), path, "want a map, got %s", describe(n))
		return nil, false
	}
	out := map[string]any{}
	for key, value := range entries(n) {
		at := Join(path, key.Value)
		r.Origins[at] = r.at(key)
		if key.Value != strings.ToLower(key.Value) { // viper would make it so, silently
			r.addAt(r.at(key), at, "want a name in lower case")
		}
		if text, ok := r.text(resolve(value), at, "a string"); ok {
			out[key.Value] = text
		}
	}
	return out, true
}

// itemName matches what can be the name of an item of a list.
var itemName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

func (r *reader) scalar(n *yaml.Node, f *Field, path string) (any, bool) {
	text, ok := r.text(n, path, f.wanted())
	if !ok {
		return nil, false
	}
	v, err := Parse(f.Type, text)
	if err != nil {
		// Quoted as it stands in the file: what a variable held may be a secret in the wrong place.
		r.addAt(r.at(n), path, "%v%s", err, quote(f.Type, n.Value))
		return nil, false
	}
	return v, true
}

// text is a scalar as it stands in the file, its variables expanded. wanted describes it.
func (r *reader) text(n *yaml.Node, path, wanted string) (string, bool) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		r.addAt(r.at(n), path, "want %s, got %s", wanted, describe(n))
		return "", false
	}
	text, err := Expand(n.Value, os.LookupEnv)
	if err != nil {
		r.addAt(r.at(n), path, "%v", err)
		return "", false
	}
	if text != n.Value {
		o := r.at(n)
		o.Reference, o.Value = n.Value, text
		r.Origins[path] = o
	}
	return text, true
}

// entries yields the keys of a mapping with their values: its own, then those of its merge keys
// (<<) that it does not have itself. Decoding has refused a merge key that leads to no mapping, and
// one that leads to itself.
func entries(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) { visit(n, map[string]bool{}, yield) }
}

// visit yields the entries whose keys are not seen yet; false when yield wants no more. n is a
// mapping, or the value of a merge key: a list of mappings is as good there.
func visit(n *yaml.Node, seen map[string]bool, yield func(key, value *yaml.Node) bool) bool {
	n = resolve(n)
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			if !visit(item, seen, yield) {
				return false
			}
		}
		return true
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		if !seen[key.Value] && !yield(key, value) {
			return false
		}
		seen[key.Value] = true
	}
	for _, from := range merged {
		if !visit(from, seen, yield) {
			return false
		}
	}
	return true
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe names the kind of a node, not its value: that may be a secret in the wrong place.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	if isNull(n) {
		return "nothing"
	}
	return "a single value"
}

func findField(fields []Field, key string) *Field {
	for i := range fields {
		if fields[i].Key == key {
			return &fields[i]
		}
	}
	return nil
}

// unknownKey is the suggestion for a key that is none of fields.
func (r *reader) unknownKey(key string, fields []Field) string {
	if other := r.otherNames[key]; findField(fields, other) != nil {
		return fmt.Sprintf(": did you mean %q?", other)
	}
	keys := keysOf(fields)
	if longer := beginWith(key, keys); len(longer) == 1 {
		return fmt.Sprintf(": did you mean %q?", longer[0])
	}
	return suggest.DidYouMean(key, keys, len(fields))
}

// beginWith are the keys that begin with what was written, unless that is a few letters only.
func beginWith(written string, keys []string) (found []string) {
	const few = 3
	for _, key := range keys {
		if len(written) > few && strings.HasPrefix(key, written) {
			found = append(found, key)
		}
	}
	return found
}

func keysOf(fields []Field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.Key
	}
	return keys
}
