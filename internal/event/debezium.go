package event

import (
	"bytes"
	"cmp"
	"strconv"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// Operations of Debezium.
const (
	debeziumCreate = "c"
	debeziumUpdate = "u"
	debeziumDelete = "d"
	debeziumRead   = "r" // a state, and not a change to it
)

// AttrInformerData holds what an event about an informer says, where its data would not be one of
// Debezium's: engines stop at a value that they do not know, and pass over one that is null.
const AttrInformerData = "informerdata"

// debeziumOp returns what happened to the row. An engine takes a row back by what it was before:
// where that is not known, the event reports a state.
func debeziumOp(c *Change) string {
	switch {
	case c.Op == Deleted:
		return debeziumDelete
	case c.Op == Updated && c.Old != nil:
		return debeziumUpdate
	case c.Op == Added && !c.Initial && !c.Inferred:
		return debeziumCreate
	}
	return debeziumRead
}

// debezium returns an event as Debezium's connectors for databases send it, without a schema: the
// row before, the row after, where it is from, and what happened. A row has the columns that can be
// a key, and the object.
func (m *Maker) debezium(e *Event, c *Change) []byte {
	size := 1024 + len(rawOf(c))
	if c.Old != nil {
		size += len(c.Old.Raw)
	}
	op := debeziumOp(c)
	out := append(make([]byte, 0, size), debeziumHead...)
	switch op {
	case debeziumDelete:
		out = appendRow(out, e, cmp.Or(e.Previous, e.ResourceVersion), lastState(c))
	case debeziumUpdate:
		out = appendRow(out, e, e.Previous, c.Old.Raw)
	default:
		out = append(out, "null"...)
	}
	out = append(out, `,"after":`...)
	if op == debeziumDelete {
		out = append(out, "null"...)
	} else {
		out = appendRow(out, e, e.ResourceVersion, rawOf(c))
	}
	out = append(out, `,"source":`...)
	out = m.appendSource(out, e)
	out = append(out, `,"op":"`...)
	out = append(out, op...)
	out = append(out, `","ts_ms":`...)
	return append(strconv.AppendInt(out, milliseconds(e.Time), 10), '}')
}

const debeziumHead = `{"before":`

// rawOf returns the object of a change, nil where it is not known.
func rawOf(c *Change) []byte {
	if c.Object == nil {
		return nil
	}
	return c.Object.Raw
}

// lastState returns the object before a delete. The API server gives it with the version of the
// delete; the row that an engine has is that of the version before, and otherwise the same.
func lastState(c *Change) []byte {
	if c.Object == nil || c.Before == "" || c.Before == c.Version {
		return rawOf(c)
	}
	raw := c.Object.Raw
	version := member(member(jsontree.Parse(raw), "metadata"), "resourceVersion")
	if !version.Exists() || string(version.Raw()) != strconv.Quote(string(c.Version)) {
		return raw
	}
	out := append(make([]byte, 0, len(raw)), raw[:version.Start()]...)
	out = appendString(out, string(c.Before))
	return append(out, raw[version.End():]...)
}

// appendRow appends a row. Its object is null where only its name is known.
func appendRow(out []byte, e *Event, version string, object []byte) []byte {
	out = append(out, `{"uid":`...)
	out = appendString(out, e.UID)
	out = append(out, `,"namespace":`...)
	out = appendString(out, e.Namespace)
	out = append(out, `,"name":`...)
	out = appendString(out, e.Name)
	out = append(out, `,"resourceversion":`...)
	out = appendString(out, version)
	out = append(out, `,"object":`...)
	if object == nil {
		object = []byte("null")
	}
	return append(append(out, object...), '}')
}

// appendSource appends where the event is from, in Debezium's words, and the attributes that say
// more: the engines that read Debezium see no headers.
func (m *Maker) appendSource(out []byte, e *Event) []byte {
	out = append(out, `{"version":"1","connector":"kubebridge","name":`...)
	out = appendString(out, m.cfg.Cluster)
	out = append(out, `,"ts_ms":`...)
	out = strconv.AppendInt(out, milliseconds(e.Time), 10)
	out = append(out, `,"snapshot":"`...)
	out = strconv.AppendBool(out, e.Initial)
	out = append(out, `","db":`...)
	out = appendString(out, m.cfg.Cluster)
	out = append(out, `,"schema":`...)
	out = appendString(out, templateFields["group"](e))
	out = append(out, `,"table":`...)
	out = appendString(out, e.Resource)
	e.Each(func(name, value string) {
		if isSourceAttribute[name] {
			out = append(append(append(out, `,"`...), name...), `":`...)
			out = appendString(out, value)
		}
	})
	return append(out, '}')
}

// isSourceAttribute has the attributes that neither the row nor Debezium's own words give.
var isSourceAttribute = func() map[string]bool {
	set := map[string]bool{}
	for _, name := range []string{
		"id", "sequence", "previous", "changed", "informer", "timesource", "notbefore", "manager", "managersubresource",
		"manageroperation", "lastmanager", "cause", "inferred",
	} {
		set[name] = true
	}
	return set
}()

func milliseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// isDebezium reports whether data is a payload of Debezium, and no object that begins as one does.
func isDebezium(data []byte) bool {
	return bytes.HasPrefix(data, []byte(debeziumHead)) &&
		!member(jsontree.Parse(data), "metadata").Exists()
}

// DebeziumObject returns the object that a payload of Debezium is about: the one after the change,
// else the one before it. ok is false for data of another form; the object is nil where there is
// none.
func DebeziumObject(data []byte) (object []byte, ok bool) {
	if !isDebezium(data) {
		return nil, false
	}
	payload := jsontree.Parse(data)
	for _, row := range []string{"after", "before"} {
		if value := member(member(payload, row), "object"); value.IsObject() {
			return value.Raw(), true
		}
	}
	return nil, true
}

// debeziumMetadata returns a payload of Debezium with the metadata of its objects in their place.
func debeziumMetadata(data []byte) []byte {
	var out []byte
	from, payload := 0, jsontree.Parse(data)
	for _, row := range []string{"before", "after"} { // in their order
		object := member(member(payload, row), "object")
		if !object.IsObject() {
			continue
		}
		out = append(out, data[from:object.Start()]...)
		if metadata := member(object, "metadata"); metadata.Exists() {
			out = append(append(append(out, partialHead...), metadata.Raw()...), '}')
		} else {
			out = append(out, "null"...)
		}
		from = object.End()
	}
	return append(out, data[from:]...)
}

// InformerData returns what an event about an informer says, wherever it has it.
func (e *Event) InformerData() []byte {
	if len(e.Data) > 0 {
		return e.Data
	}
	for _, a := range e.Extensions {
		if a.Name == AttrInformerData {
			return []byte(a.Value)
		}
	}
	return nil
}

// report sets what an event about the informer says.
func (m *Maker) report(e *Event, data any) {
	text := mustJSON(data)
	if m.cfg.Payload == PayloadDebezium {
		e.Extensions = append(e.Extensions, Attribute{AttrInformerData, string(text)})
		return
	}
	e.Data = text
}

// Types are the vocabulary of types and subjects.
type Types string

const (
	TypesBridge  Types = "bridge"  // our own; the default
	TypesKnative Types = "knative" // that of Knative's ApiServerSource
)

// knativeOps are Knative's words. It has none for a Synced, nor for news about an informer: those
// keep ours.
var knativeOps = map[Op]string{Added: "add", Updated: "update", Deleted: "delete"}

// typeNames returns the types of events about objects.
func typeNames(cfg *MakerConfig) map[Op]string {
	names := map[Op]string{}
	for _, op := range []Op{Added, Updated, Deleted, Synced} {
		names[op] = "dev.kubebridge.resource." + string(op)
	}
	if cfg.Types != TypesKnative {
		return names
	}
	mode := "resource."
	if cfg.Payload == PayloadReference {
		mode = "ref."
	}
	for op, word := range knativeOps {
		names[op] = "dev.knative.apiserver." + mode + word
	}
	return names
}

// TypeOf returns the type of an event about an object.
func TypeOf(op Op, types Types, payload Payload) string {
	return typeNames(&MakerConfig{Types: types, Payload: payload})[op]
}

// knativeSubject returns the object's path in Knative's form, which knows neither /api nor
// cluster-scoped objects.
func knativeSubject(t resource.Type, namespace, name string) string {
	return "/apis/" + t.APIVersion() + "/namespaces/" + namespace + "/" + t.Resource + "/" + name
}

// objectReference is what Knative sends in the place of an object.
type objectReference struct {
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// asKnative changes what Knative names otherwise.
func (m *Maker) asKnative(e *Event) {
	e.Subject = knativeSubject(m.cfg.Type, e.Namespace, e.Name)
	if m.cfg.Payload == PayloadReference {
		e.Data = mustJSON(objectReference{e.Kind, e.Namespace, e.Name, e.APIVersion})
	}
}
