package settings

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// Node is a configuration as YAML: secrets masked, values that came from variables as the file has
// them, and without the sections that are not there.
func (o Origins) Node(config any) (*yaml.Node, error) {
	var doc yaml.Node
	if err := doc.Encode(config); err != nil {
		return nil, err
	}
	o.restoreReferences(&doc, "")
	dropAbsent(&doc)
	return &doc, nil
}

// restoreReferences writes values that came from variables as the file has them: ${NAME}. A secret
// that is a variable as a whole is shown as that too. Text around a variable may be a part of the
// secret, so then it stays masked.
func (o Origins) restoreReferences(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			o.restoreReferences(n.Content[i+1], Join(path, n.Content[i].Value))
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			o.restoreReferences(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.ScalarNode:
		from := o[path]
		masked := strings.Contains(n.Value, Masked) && onlyVariable.MatchString(from.Reference)
		if from.Value != "" && (n.Value == from.Value || masked) {
			n.SetString(from.Reference)
		}
	}
}

var onlyVariable = regexp.MustCompile(`^\$\{\w+\}$`)

// dropAbsent takes the sections out that are not there: a reader takes the name alone for one with
// defaults.
func dropAbsent(n *yaml.Node) {
	kept := n.Content[:0]
	for i := 0; i < len(n.Content); i++ {
		if n.Kind == yaml.MappingNode {
			key, value := n.Content[i], n.Content[i+1]
			i++
			if isNull(value) {
				continue
			}
			kept = append(kept, key)
		}
		dropAbsent(n.Content[i])
		kept = append(kept, n.Content[i])
	}
	n.Content = kept
}

// Field is one key of a section: what the struct tags say of it.
type Field struct {
	Key        string // as in YAML: "labelSelector"
	Index      int    // of the struct field
	Type       reflect.Type
	Default    string // as it would be written in YAML
	HasDefault bool
	Allowed    []string // the values of a fixed set; nil for any
	Example    string
	IsSection  bool // a struct, or a pointer to one
}

// knownFields are those of each section that was asked for: reflect.Type -> []Field.
var knownFields sync.Map

// Fields lists the keys of a section, in the order of the struct. The list is shared.
func Fields(t reflect.Type) []Field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]Field) //nolint:forcetypeassert // nothing else is stored
	}
	var list []Field
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		value, given := f.Tag.Lookup("default")
		list = append(list, Field{
			Key: key, Index: i, Type: f.Type,
			Default: value, HasDefault: given,
			Allowed:   strings.Fields(f.Tag.Get("oneof")),
			Example:   f.Tag.Get("example"),
			IsSection: section(f.Type) != nil,
		})
	}
	knownFields.Store(t, list)
	return list
}

// section is the struct type behind a type of a section, or nil.
func section(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

// IsList reports whether a key holds a list of sections.
func (f *Field) IsList() bool {
	return f.Type.Kind() == reflect.Slice && section(f.Type.Elem()) != nil
}

// IsScalar reports whether one text holds the whole value. It may be a list of texts separated by
// commas.
func (f *Field) IsScalar() bool {
	return !f.IsSection && !f.IsList() && f.Type.Kind() != reflect.Map
}

// wanted describes the value of a key that is a scalar.
func (f *Field) wanted() string {
	switch kind := f.Type.Kind(); {
	case f.Example != "":
		return fmt.Sprintf("a string such as %q", f.Example)
	case f.Type == durationType:
		return "a duration such as 30s"
	case f.Type == sizeType:
		return "a size such as 64MiB"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.String:
		return "a string"
	default:
		return "a number"
	}
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	secretType   = reflect.TypeFor[Secret]()
	textsType    = reflect.TypeFor[[]string]()
	urlsType     = reflect.TypeFor[[]URL]()
)

// Join extends the path of a key.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
