package deploy_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/settings"
)

const configSchema = "../config/bridge.schema.json"

// The schema of the values contains the schema of the configuration.
func TestValuesSchema(t *testing.T) {
	schema, err := valuesSchema()
	must(t, err)
	golden(t, filepath.Join(chartDir, "values.schema.json"), schema)
}

// writeValuesSchema writes the schema by which the chart checks values.
func writeValuesSchema() error {
	schema, err := valuesSchema()
	return errors.Join(err, os.WriteFile(filepath.Join(chartDir, "values.schema.json"), []byte(schema), 0o644))
}

// valuesSchema puts the schema of the configuration into that of the values.
func valuesSchema() (string, error) {
	schema, err := readJSON("helm/values.base.schema.json")
	if err != nil {
		return "", err
	}
	inner, err := readJSON(configSchema)
	if err != nil {
		return "", err
	}
	delete(inner, "$schema")
	schema["properties"].(map[string]any)["config"] = inner
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err = encoder.Encode(schema)
	return out.String(), err
}

func readJSON(file string) (content map[string]any, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &content)
	return content, err
}

// compile compiles the schema of the configuration.
func compile(t *testing.T) *jsonschema.Schema {
	t.Helper()
	file, err := os.Open(configSchema)
	must(t, err)
	defer file.Close()
	doc, err := jsonschema.UnmarshalJSON(file)
	must(t, err)
	c := jsonschema.NewCompiler()
	must(t, c.AddResource("schema.json", doc))
	s, err := c.Compile("schema.json")
	must(t, err)
	return s
}

// Each value of the example is made wrong in turn, in each of some ways: the schema and the bridge
// must agree on whether it is.
func TestSchemaLikeBridge(t *testing.T) {
	schema := compile(t)
	text, err := os.ReadFile("../config/bridge.example.yaml")
	must(t, err)
	var example any
	must(t, yaml.Unmarshal(text, &example))
	if err := schema.Validate(example); err != nil {
		t.Fatalf("the example: %v", err)
	}
	wrong := map[string]any{"a text": "nonsense", "a number": 7.5, "a whole number": 3, "a list": []any{"x"}, "a section": map[string]any{"nonsense": 1}, "a variable": "${SET}"}
	t.Setenv("SET", "1")
	checked := 0
	for _, at := range places(example, nil) {
		for name, value := range wrong {
			checked++
			changed := replace(example, at, value)
			said := strings.Join(shapeProblems(t, changed, path(at)), "; ")
			refused := schema.Validate(changed)
			if (refused != nil) != (said != "") && !mayDiffer(name, value, at, refused, said) {
				t.Errorf("%s: %s: the schema says %v, the bridge %q", path(at), name, refused, said)
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d changes were compared", checked)
	}
}

// mayDiffer allows what the schema refuses on purpose: Helm would make another text of a number
// (0123 becomes 83), so texts are to be quoted. And what a variable holds, and the operations in a
// list, only the bridge knows.
func mayDiffer(name string, value any, at []any, refused error, said string) bool {
	_, isText := value.(string)
	if refused != nil {
		return said == "" && !isText && strings.Contains(name, "number")
	}
	return name == "a variable" || slices.Contains(at, any("operations"))
}

// shapeProblems are what the bridge says of a key, as far as it is about its shape: what is wrong
// beside another key, or with what the value means, the schema can't know.
func shapeProblems(t *testing.T, content any, path string) (list []string) {
	t.Helper()
	text, err := yaml.Marshal(content)
	must(t, err)
	_, err = config.Load(config.Options{File: "bridge.yaml", Data: text})
	for _, p := range settings.Problems(err) {
		if line := p.Error(); strings.Contains(line, path) && slices.ContainsFunc(shapes, func(s string) bool { return strings.Contains(line, s) }) {
			list = append(list, line)
		}
	}
	return list
}

// shapes are how the bridge begins what it says of a value's shape.
var shapes = []string{"unknown key", "want a string", "want a list", "want a map", "want a duration", "want a size", "want true or false", "want a whole number", "want a number", "want one of", "required"}

// places are the ways to every value of a document but the document itself.
func places(v any, at []any) (list [][]any) {
	if len(at) > 0 {
		list = append(list, at)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			list = append(list, places(inner, append(slices.Clip(at), key))...)
		}
	case []any:
		for i, inner := range v {
			list = append(list, places(inner, append(slices.Clip(at), i))...)
		}
	}
	return list
}

func path(at []any) string {
	var out strings.Builder
	for _, step := range at {
		if i, ok := step.(int); ok {
			fmt.Fprintf(&out, "[%d]", i)
			continue
		}
		if out.Len() > 0 {
			out.WriteString(".")
		}
		fmt.Fprint(&out, step)
	}
	return out.String()
}

// replace gives a copy of a document with another value in a place.
func replace(v any, at []any, value any) any {
	if len(at) == 0 {
		return value
	}
	switch v := v.(type) {
	case map[string]any:
		copied := maps.Clone(v)
		copied[at[0].(string)] = replace(v[at[0].(string)], at[1:], value)
		return copied
	case []any:
		copied := slices.Clone(v)
		copied[at[0].(int)] = replace(v[at[0].(int)], at[1:], value)
		return copied
	}
	panic(fmt.Sprintf("no place %v", at))
}
