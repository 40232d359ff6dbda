package config

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
)

// field is one key of a section: what the struct tags say of it.
type field struct {
	key       string // as in YAML: "labelSelector"
	index     int    // of the struct field
	typ       reflect.Type
	fallback  string // the default, as it would be written in YAML
	hasValue  bool   // whether there is a default
	allowed   []string
	example   string
	isSection bool // a struct, or a pointer to one
}

// knownFields are those of each section that was asked for: reflect.Type -> []field.
var knownFields sync.Map

// fieldsOf lists the keys of a section, in the order of the struct. The list is shared.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields.Load(t); ok {
		return known.([]field) //nolint:forcetypeassert // nothing else is stored
	}
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		fallback, hasValue := f.Tag.Lookup("default")
		list = append(list, field{
			key: key, index: i, typ: f.Type,
			fallback: fallback, hasValue: hasValue,
			allowed:   strings.Fields(f.Tag.Get("oneof")),
			example:   f.Tag.Get("example"),
			isSection: section(f.Type) != nil,
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

// isList reports whether a key holds a list of sections: informers, sinks, and bindings.
func (f *field) isList() bool {
	return f.typ.Kind() == reflect.Slice && section(f.typ.Elem()) != nil
}

// isScalar reports whether one text holds the whole value. It may be a list of texts separated by
// commas.
func (f *field) isScalar() bool {
	return !f.isSection && !f.isList() && f.typ.Kind() != reflect.Map
}

// wanted describes the value of a key that is a scalar.
func (f *field) wanted() string {
	switch kind := f.typ.Kind(); {
	case f.example != "":
		return fmt.Sprintf("a string such as %q", f.example)
	case f.typ == durationType:
		return "a duration such as 30s"
	case f.typ == sizeType:
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

// join extends the path of a key.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
