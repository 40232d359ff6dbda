package config_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

const jsonSchema = "bridge.schema.json"

// The schema is for editors, and for the Helm chart, which checks values by it before anything is
// installed. It says what the structs say: keys, types, allowed values, and what is required; what
// only the bridge can know (names of sinks, selectors, filters) it leaves to `bridge validate`.
func TestJSONSchema(t *testing.T) {
	s := &schemaWriter{t: t, comments: comments(t)}
	schema := s.section(reflect.TypeFor[config.Config]())
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "Configuration of bridge"
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	golden(t, jsonSchema, out.String())
}

type schemaWriter struct {
	t        *testing.T
	comments map[string]string
}

// section is the schema of a struct.
func (s *schemaWriter) section(typ reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for f := range typ.Fields() {
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		comment := s.comments[typ.String()+"."+f.Name]
		schema := s.value(f)
		schema["description"] = keyForName(key, f.Name, comment)
		if strings.HasSuffix(comment, " Required.") {
			required = append(required, key)
		}
		properties[key] = schema
	}
	schema := map[string]any{"type": []string{"object", "null"}, "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// value is the schema of what a key may hold. Whatever is one value may be written as a text, and
// hold ${VARIABLES}. The patterns are shorter than the truth, since they are what an error shows:
// 1..5s is left to the bridge.
func (s *schemaWriter) value(f reflect.StructField) map[string]any {
	if allowed := strings.Fields(f.Tag.Get("oneof")); len(allowed) > 0 {
		return text("^(" + strings.Join(allowed, "|") + ")$")
	}
	switch f.Type.String() {
	case "time.Duration":
		return text(`^([0-9.]+(ns|us|µs|ms|s|m|h|d|w))+$|^0$`) // a number has no unit
	case "settings.Size":
		schema := text(`^[0-9.]+ ?([TGMK]iB?|[TGMkK]?B)?$`)
		schema["type"], schema["minimum"] = []string{"string", "number", "null"}, 0
		return schema
	case "[]string", "[]settings.URL":
		return map[string]any{"type": []string{"array", "null"}, "items": map[string]any{"type": "string"}}
	case "map[string]string", "map[string]settings.Secret":
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": map[string]any{"type": []string{"string", "number", "boolean"}}}
	}
	switch f.Type.Kind() {
	case reflect.String:
		return map[string]any{"type": []string{"string", "null"}}
	case reflect.Bool:
		return typed("boolean", `^(true|false)$`)
	case reflect.Int:
		return typed("integer", `^[0-9]+$`)
	case reflect.Float32, reflect.Float64:
		return typed("number", `^[0-9.]+([eE][+-]?[0-9]+)?$`)
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": s.section(f.Type.Elem())}
	case reflect.Pointer:
		return s.section(f.Type.Elem())
	case reflect.Struct:
		return s.section(f.Type)
	default:
		panic(fmt.Sprintf("%s has type %s, which the schema does not know", f.Name, f.Type))
	}
}

// text is a text of a pattern, or one with a variable.
func text(pattern string) map[string]any {
	return map[string]any{"type": []string{"string", "null"}, "pattern": pattern + `|\$\{`}
}

func typed(name, pattern string) map[string]any {
	schema := text(pattern)
	schema["type"] = []string{name, "string", "null"}
	if name != "boolean" {
		schema["minimum"] = 0
	}
	return schema
}
