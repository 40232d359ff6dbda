package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// valuesHead is the line of the chart's README below which the table is.
const valuesHead = "<!-- Made of values.yaml by `go test . -update` in deploy/. Do not edit below. -->\n"

// TestTheChartsReadme: its table has every value, with the default and the comment of values.yaml.
// Values without a comment that follow each other and have one default share a row.
func TestTheChartsReadme(t *testing.T) {
	file := filepath.Join(chartDir, "README.md")
	text, err := os.ReadFile(file)
	must(t, err)
	head, _, found := strings.Cut(string(text), valuesHead)
	if !found {
		t.Fatalf("%s has no line\n%s", file, valuesHead)
	}
	golden(t, file, head+valuesHead+"\n"+valuesTable(t))
}

func valuesTable(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	must(t, err)
	var document yaml.Node
	must(t, yaml.Unmarshal(text, &document))
	schema, err := readJSON("helm/values.base.schema.json")
	must(t, err)
	w := &tableWriter{t: t}
	w.section("", document.Content[0], schema)
	var out strings.Builder
	out.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
	for _, r := range w.rows {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", strings.Join(r.names, "`, `"), r.value, r.meaning)
	}
	return out.String()
}

// tableWriter collects the rows.
type tableWriter struct {
	t    *testing.T
	rows []tableRow
}

type tableRow struct {
	names          []string
	value, meaning string
}

// section writes the rows of a mapping. A value whose keys the schema of the chart names is one
// too.
func (w *tableWriter) section(path string, n *yaml.Node, schema map[string]any) {
	w.t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := path + key.Value
		inner, known := properties[key.Value].(map[string]any)
		if !known {
			w.t.Errorf("%s is not in the schema", name)
		}
		meaning := meaningOf(key, value)
		if _, ok := inner["properties"]; ok && value.Kind == yaml.MappingNode {
			if meaning != "" {
				w.row(name, "", meaning)
			}
			w.section(name+".", value, inner)
			continue
		}
		w.row(name, defaultOf(w.t, name, value), meaning)
	}
}

func (w *tableWriter) row(name, value, meaning string) {
	if value != "" {
		value = "`" + strings.ReplaceAll(value, "|", `\|`) + "`"
	}
	if n := len(w.rows); n > 0 && meaning == "" && w.rows[n-1].meaning == "" && w.rows[n-1].value == value {
		w.rows[n-1].names = append(w.rows[n-1].names, name)
		return
	}
	w.rows = append(w.rows, tableRow{names: []string{name}, value: value, meaning: strings.ReplaceAll(meaning, "|", `\|`)})
}

// meaningOf is the comment of a value, without the examples at its end.
func meaningOf(key, value *yaml.Node) string {
	var words []string
	for _, comment := range []string{key.HeadComment, key.LineComment, value.LineComment} {
		// A blank line ends a comment about what comes before.
		blocks := strings.Split(comment, "\n\n")
		for line := range strings.Lines(blocks[len(blocks)-1]) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "#")
			if strings.HasPrefix(line, "   - ") {
				break
			}
			words = append(words, strings.Fields(line)...)
		}
	}
	return strings.TrimSuffix(strings.Join(words, " "), ":")
}

// defaultOf is the default on one line.
func defaultOf(t *testing.T, name string, n *yaml.Node) string {
	t.Helper()
	if name == "config" {
		return ""
	}
	var value any
	must(t, n.Decode(&value))
	if n.Kind == yaml.ScalarNode {
		if value == "" {
			return `""`
		}
		return fmt.Sprint(value)
	}
	inFlow(n)
	text, err := yaml.Marshal(n)
	must(t, err)
	return strings.Join(strings.Fields(string(text)), " ")
}

// inFlow takes off comments, and writes mappings and lists in braces.
func inFlow(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	n.Style |= yaml.FlowStyle
	if n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, child := range n.Content {
		inFlow(child)
	}
}
