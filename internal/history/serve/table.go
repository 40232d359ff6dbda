package serve

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

// column is one of a table.
type column struct {
	name, typ, format string
	wide              bool // only with kubectl's -o wide
	cell              func(o object, now time.Time) any
}

// object is one that a cell is made of.
type object map[string]any

// at returns what lies at a path, nil for nothing.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, step := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[step]
	}
	return v
}

// text returns a scalar at a path, as kubectl shows it.
func (o object) text(path ...string) string { return textOf(o.at(path...)) }

func textOf(v any) string {
	switch v := v.(type) {
	case nil, map[string]any, []any:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return fmt.Sprint(v)
}

// number returns an integer at a path, 0 for none.
func (o object) number(path ...string) int64 {
	n, ok := o.at(path...).(json.Number)
	if !ok {
		return 0
	}
	value, _ := n.Int64() // 0 for what is none
	return value
}

func (o object) list(path ...string) []object {
	items, _ := o.at(path...).([]any)
	var list []object
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			list = append(list, m)
		}
	}
	return list
}

// age of a time as kubectl shows it.
func age(stamp string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at))
}

var (
	nameColumn = column{
		name: "Name", typ: "string", format: "name",
		cell: func(o object, _ time.Time) any { return o.text("metadata", "name") },
	}
	ageColumn = column{
		name: "Age", typ: "string",
		cell: func(o object, now time.Time) any { return age(o.text("metadata", "creationTimestamp"), now) },
	}
)

// columnsOf returns the columns of a resource.
func columnsOf(t *resourceType) []column {
	if t.columns != nil {
		return t.columns
	}
	if list, known := kindColumns[t.Kind+"."+t.Group]; known {
		return list
	}
	list := []column{nameColumn, ageColumn}
	if t.isCustom {
		list[1].typ = "date"
	}
	return list
}

// definitionsOf returns the columns as JSON.
func definitionsOf(t *resourceType) []byte {
	list := []metav1.TableColumnDefinition{}
	for _, c := range columnsOf(t) {
		d := metav1.TableColumnDefinition{Name: c.name, Type: c.typ, Format: c.format}
		if c.wide {
			d.Priority = 1
		}
		list = append(list, d)
	}
	text, _ := json.Marshal(list) // it has texts and numbers only
	return text
}

// tableRow returns an object as a row. include is the parameter includeObject.
func tableRow(t *resourceType, v *query.Version, now time.Time, include string) ([]byte, error) {
	var o object
	decoder := json.NewDecoder(strings.NewReader(string(v.Event.Data)))
	decoder.UseNumber()
	if err := decoder.Decode(&o); err != nil {
		return nil, err
	}
	row := struct {
		Cells      []any                      `json:"cells"`
		Conditions []metav1.TableRowCondition `json:"conditions,omitempty"`
		Object     json.RawMessage            `json:"object,omitempty"`
	}{Cells: []any{}, Conditions: rowConditions(t, o)}
	for _, c := range columnsOf(t) {
		row.Cells = append(row.Cells, c.cell(o, now))
	}
	switch include {
	case "None":
	case "Object":
		row.Object = v.Event.Data
	default:
		metadata, err := metadataOf(v.Event.Data)
		if err != nil {
			return nil, err
		}
		row.Object = metadata
	}
	return json.Marshal(row)
}

// rowConditions mark the row of a pod that has ended.
func rowConditions(t *resourceType, o object) []metav1.TableRowCondition {
	message := map[string]string{
		"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed.",
	}[o.text("status", "phase")]
	if t.groupResource() != "pods" || message == "" {
		return nil
	}
	return []metav1.TableRowCondition{{
		Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: o.text("status", "phase"),
		Message: message,
	}}
}

// customColumns returns the columns that a CustomResourceDefinition names; nil for none.
func customColumns(list []query.DefinitionColumn) []column {
	if len(list) == 0 {
		return nil
	}
	columns := []column{nameColumn}
	for _, c := range list {
		path := strings.TrimPrefix(c.JSONPath, ".")
		isDate := c.Type == "date"
		columns = append(columns, column{
			name: c.Name, typ: c.Type, format: c.Format, wide: c.Priority > 0,
			cell: func(o object, now time.Time) any {
				raw, err := json.Marshal(o)
				if err != nil {
					return nil
				}
				value := diff.Field(raw, path)
				var decoded any
				if json.Unmarshal(value, &decoded) != nil {
					return nil
				}
				if text, ok := decoded.(string); ok && isDate {
					return age(text, now)
				}
				return decoded
			},
		})
	}
	return columns
}
