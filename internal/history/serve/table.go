package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

type column struct {
	name, typ, format string
	wide              bool // only with kubectl's -o wide
	cell              func(o object, now time.Time) any
}

// object is one that a cell is made of, or a part of one. Only what a cell looks at is decoded.
type object struct{ jsontree.Value }

// find returns what lies at a path.
func (o object) find(path ...string) object {
	for _, step := range path {
		var found jsontree.Value
		for w := o.Walk(); o.IsObject() && w.Next(); {
			if w.Name() == step {
				found = w.Value()
				break
			}
		}
		o = object{found}
	}
	return o
}

// has reports whether something lies at a path, and is not null.
func (o object) has(path ...string) bool {
	found := o.find(path...)
	return found.Exists() && !found.IsNull()
}

func (o object) isTrue(path ...string) bool { return string(o.find(path...).Raw()) == "true" }

// text returns a scalar at a path, as kubectl shows it.
func (o object) text(path ...string) string {
	found := o.find(path...)
	raw := found.Raw()
	switch {
	case len(raw) == 0, found.IsNull(), found.IsObject(), found.IsArray():
		return ""
	case raw[0] != '"':
		return string(raw)
	case !bytes.ContainsRune(raw, '\\'):
		return string(raw[1 : len(raw)-1])
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // what it can of one that is none
	return string(text)
}

// number returns an integer at a path, 0 for none.
func (o object) number(path ...string) int64 {
	value, _ := strconv.ParseInt(string(o.find(path...).Raw()), 10, 64) // 0 for what is none
	return value
}

// list returns the items of an array that are objects.
func (o object) list(path ...string) (list []object) {
	for item := range o.items(path...) {
		if item.IsObject() {
			list = append(list, item)
		}
	}
	return list
}

// items yields what an array has.
func (o object) items(path ...string) iter.Seq[object] {
	return func(yield func(object) bool) {
		found := o.find(path...)
		for w := found.Walk(); found.IsArray() && w.Next(); {
			if !yield(object{w.Value()}) {
				return
			}
		}
	}
}

// texts returns the items of an array as texts.
func (o object) texts(path ...string) (list []string) {
	for item := range o.items(path...) {
		list = append(list, item.text())
	}
	return list
}

// members yields the members of an object by name.
func (o object) members(path ...string) iter.Seq2[string, object] {
	return func(yield func(string, object) bool) {
		found := o.find(path...)
		for w := found.Walk(); found.IsObject() && w.Next(); {
			if !yield(w.Name(), object{w.Value()}) {
				return
			}
		}
	}
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

// userColumn is behind those of each kind, with Config.Who.
var userColumn = column{
	name: "User", typ: "string",
	cell: func(o object, _ time.Time) any {
		return cmp.Or(o.text("metadata", "annotations", ActorAnnotation), "<unknown>")
	},
}

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

// appendRow appends an object as a row. include is the parameter includeObject.
func appendRow(
	dst []byte, t *resourceType, v *query.Version, now time.Time, include string,
) ([]byte, error) {
	o := object{jsontree.Parse(v.Event.Data)}
	dst = append(dst, `{"cells":[`...)
	for i, c := range columnsOf(t) {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendCell(dst, c.cell(o, now)); err != nil {
			return nil, err
		}
	}
	dst = append(dst, ']')
	if list := rowConditions(t, o); list != nil {
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, `,"conditions":`...), text...)
	}
	switch include {
	case "None":
	case "Object":
		dst = append(append(dst, `,"object":`...), v.Event.Data...)
	default:
		dst = appendMetadata(append(dst, `,"object":`...), o)
	}
	return append(dst, '}'), nil
}

func appendCell(dst []byte, cell any) ([]byte, error) {
	switch cell := cell.(type) {
	case string:
		return jsontext.AppendQuote(dst, strings.ToValidUTF8(cell, "\uFFFD"))
	case int64:
		return strconv.AppendInt(dst, cell, 10), nil
	}
	text, err := json.Marshal(cell)
	return append(dst, text...), err
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

// customColumns returns the columns that a CustomResourceDefinition names; nil for none. Those
// behind one whose path can't be read are left out, as by an API server.
func customColumns(list []query.DefinitionColumn) []column {
	if len(list) == 0 {
		return nil
	}
	columns := []column{nameColumn}
	for _, c := range list {
		path := jsonpath.New(c.Name).AllowMissingKeys(true)
		if path.Parse("{"+c.JSONPath+"}") != nil {
			break
		}
		find := func(o object) (found any) {
			var content any
			if utiljson.Unmarshal(o.Raw(), &content) != nil {
				return nil
			}
			results, err := path.FindResults(content)
			if err != nil || len(results) == 0 || len(results[0]) == 0 {
				return nil
			}
			return results[0][0].Interface()
		}
		if steps := plainPath(c.JSONPath); steps != nil {
			find = func(o object) (found any) {
				_ = utiljson.Unmarshal(o.find(steps...).Raw(), &found) // nil for none
				return found
			}
		}
		columns = append(columns, column{
			name: c.Name, typ: c.Type, format: c.Format, wide: c.Priority > 0,
			cell: func(o object, now time.Time) any { return customCell(path, c.Type, find(o), now) },
		})
	}
	return columns
}

// plainPath returns the steps of a path that has names only, as ".spec.replicas"; else nil. They
// are found without decoding the object.
func plainPath(path string) []string {
	const others = `[]()*?@$'"\:, ` // and ".." makes an empty step
	steps := strings.Split(strings.TrimPrefix(path, "."), ".")
	if strings.ContainsAny(path, others) || slices.Contains(steps, "") {
		return nil
	}
	return steps
}

// customCell returns a value as a cell of a type, nil for one of another type.
func customCell(path *jsonpath.JSONPath, typ string, value any, now time.Time) any {
	number, isNumber := value.(float64)
	integer, isInteger := value.(int64)
	text, isText := value.(string)
	_, isBool := value.(bool)
	switch {
	case value == nil:
	case typ == "string":
		var printed bytes.Buffer
		if path.PrintResults(&printed, []reflect.Value{reflect.ValueOf(value)}) == nil {
			return printed.String()
		}
	case typ == "integer" && isInteger, typ == "boolean" && isBool, typ == "number" && isNumber:
		return value
	case typ == "integer" && isNumber:
		return int64(number)
	case typ == "number" && isInteger:
		return float64(integer)
	case typ == "date" && isText:
		if _, err := time.Parse(time.RFC3339, text); err != nil && text != "" && text != "null" {
			return "<invalid>"
		}
		return age(text, now)
	}
	return nil
}
