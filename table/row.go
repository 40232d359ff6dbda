package table

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource/jsonscan"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
	"github.com/kubebridge/bridge/internal/sinks/source"

	"github.com/go-json-experiment/json/jsontext"
)

// row is one row of the table changes.
type row struct {
	event.Event
	lane     string
	position int64
	stored   time.Time
	// incarnation counts how often the stream had been recreated.
	incarnation int64
	// late is set for a change from before a midnight whose snapshot rows were there already.
	late bool
}

// rowOverhead is what a row takes in memory beside its payload.
const rowOverhead = 1 << 10

func (r *row) size() int { return len(r.Data) + rowOverhead }

// newRow copies what a message holds. An event without a time has the time when it was stored.
func newRow(m *source.Message) *row {
	r := &row{Event: m.Event, lane: m.Lane, position: int64(m.Offset), stored: m.Stored}
	r.Data = slices.Clone(m.Event.Data)
	if r.Time.IsZero() {
		r.Time = m.Stored
	}
	return r
}

// compareRows orders rows by day, cluster, object and sequence.
func compareRows(a, b *row) int {
	return cmp.Or(
		cmp.Compare(dayOf(a.Time), dayOf(b.Time)),
		cmp.Compare(a.Source, b.Source),
		cmp.Compare(a.PartitionKey, b.PartitionKey),
		cmp.Compare(a.Informer, b.Informer),
		cmp.Compare(a.Sequence, b.Sequence),
		cmp.Compare(a.position, b.position),
	)
}

const day = 24 * time.Hour

// dayOf is the number of the UTC day since 1970.
func dayOf(t time.Time) int64 {
	s := t.Unix()
	d := s / 86400
	if s%86400 < 0 {
		d--
	}
	return d
}

// Columns beside those of a flat record.
const (
	colSequence    = "sequence"
	colTime        = "time"
	colVersion     = "resourceversion"
	colLane        = "lane"
	colPosition    = "position"
	colStored      = "stored"
	colIncarnation = "incarnation"
	colSnapshot    = "snapshot"
	colLate        = "late"
	colChanged     = "changedat"
	colDeleted     = "deleted"
	colLabels      = "labels"
	colAttributes  = "attributes"
	colData        = "data"
)

// changesSchema is the schema of the table changes: the columns of a flat record under their
// names, then where the row is from.
var changesSchema = func() *iceberg.Schema {
	var fields []iceberg.NestedField
	id := 0
	next := func() int { id++; return id }
	add := func(name string, t iceberg.Type, doc string) {
		fields = append(fields, iceberg.NestedField{
			ID: next(), Name: name, Type: t, Doc: doc, Required: name == colTime,
		})
	}
	for _, c := range event.FlatTexts(&event.Event{}) {
		if c.Name == colVersion {
			add(c.Name, iceberg.PrimitiveTypes.Int64, "null where it is no number")
			continue
		}
		add(c.Name, iceberg.PrimitiveTypes.String, "")
	}
	add(colTime, iceberg.PrimitiveTypes.TimestampTz, "when it changed; of a snapshot row midnight")
	add("notbefore", iceberg.PrimitiveTypes.TimestampTz, "")
	add("initial", iceberg.PrimitiveTypes.Bool, "")
	add("inferred", iceberg.PrimitiveTypes.Bool, "")
	add(colDeleted, iceberg.PrimitiveTypes.Bool, "the object is gone: op is deleted")
	add(colSnapshot, iceberg.PrimitiveTypes.Bool, "the last row of a living object again, at midnight")
	add(colLate, iceberg.PrimitiveTypes.Bool, "came when newer snapshot rows were there")
	add(colChanged, iceberg.PrimitiveTypes.TimestampTz, "of a snapshot row: when the object changed")
	add(colLane, iceberg.PrimitiveTypes.String, "the stream, or topic/partition")
	add(colPosition, iceberg.PrimitiveTypes.Int64, "the place in the lane")
	add(colIncarnation, iceberg.PrimitiveTypes.Int64, "how often the stream had been recreated: of rows of one object "+
		"the newest has the greatest incarnation, and of these the greatest sequence")
	add(colStored, iceberg.PrimitiveTypes.TimestampTz, "when the broker stored the message")
	for _, name := range []string{colLabels, colAttributes} {
		m := &iceberg.MapType{KeyType: iceberg.PrimitiveTypes.String, ValueType: iceberg.PrimitiveTypes.String}
		add(name, m, "")
		m.KeyID, m.ValueID = next(), next()
	}
	add(colData, iceberg.PrimitiveTypes.String, "the payload, JSON")
	for _, c := range actorColumns {
		add(c.name, iceberg.PrimitiveTypes.String, c.doc)
	}
	return iceberg.NewSchema(0, fields...)
}()

// actorColumns are the columns of a row that says who made a change (op is attributed), and what
// they have. In other rows they are null.
var actorColumns = []struct{ name, doc string }{
	{"actor", "the authenticated user who made the change; the row has its id, with /actor behind"},
	{"actorgrade", "how the user is known"},
	{"impersonator", "who acted as the user"},
	{"verb", "of the request"},
	{"auditid", "of the request in the audit log"},
}

// builder makes record batches of rows.
type builder struct {
	record  *array.RecordBuilder
	columns map[string]array.Builder
}

func newBuilder(schema *arrow.Schema, record *array.RecordBuilder) *builder {
	b := &builder{record: record, columns: map[string]array.Builder{}}
	for i, f := range schema.Fields() {
		b.columns[f.Name] = record.Field(i)
	}
	return b
}

func (b *builder) text(name, value string) { b.columns[name].(*array.StringBuilder).Append(value) }

func (b *builder) flag(name string, value bool) {
	b.columns[name].(*array.BooleanBuilder).Append(value)
}

func (b *builder) number(name string, value int64) {
	b.columns[name].(*array.Int64Builder).Append(value)
}

func (b *builder) time(name string, t time.Time) {
	c := b.columns[name].(*array.TimestampBuilder)
	if t.IsZero() {
		c.AppendNull()
		return
	}
	c.Append(arrow.Timestamp(t.UnixMicro()))
}

// reserve makes room for the payloads of rows: to grow step by step copies them again and again.
func (b *builder) reserve(rows []*row) {
	bytes := 0
	for _, r := range rows {
		bytes += len(r.Data)
	}
	b.columns[colData].(*array.StringBuilder).ReserveData(min(bytes, maxBatchBytes))
}

func (b *builder) add(r *row) {
	for _, c := range event.FlatTexts(&r.Event) {
		if c.Name != colVersion {
			b.text(c.Name, c.Value)
			continue
		}
		if v, err := strconv.ParseInt(c.Value, 10, 64); err == nil {
			b.number(c.Name, v)
		} else {
			b.columns[c.Name].AppendNull()
		}
	}
	b.time(colTime, r.Time)
	b.time("notbefore", r.NotBefore)
	b.flag("initial", r.Initial)
	b.flag("inferred", r.Inferred)
	b.flag(colDeleted, r.Op == event.Deleted)
	b.flag(colSnapshot, false)
	b.flag(colLate, r.late)
	b.time(colChanged, time.Time{})
	b.text(colLane, r.lane)
	b.number(colPosition, r.position)
	b.number(colIncarnation, r.incarnation)
	b.time(colStored, r.stored)
	b.pairs(colLabels, labelsOf(r.Data))
	extensions := r.Extensions
	if r.TraceParent != "" {
		extensions = append(slices.Clone(extensions), event.Attribute{Name: "traceparent", Value: r.TraceParent})
	}
	b.pairs(colAttributes, extensions)
	for _, c := range actorColumns {
		i := slices.IndexFunc(r.Extensions, func(a event.Attribute) bool { return a.Name == c.name })
		if i < 0 || r.Op != event.Attributed {
			b.columns[c.name].AppendNull()
			continue
		}
		b.text(c.name, r.Extensions[i].Value)
	}
	if len(r.Data) == 0 {
		b.columns[colData].AppendNull()
		return
	}
	b.columns[colData].(*array.StringBuilder).BinaryBuilder.Append(r.Data)
}

func (b *builder) pairs(name string, list []event.Attribute) {
	m := b.columns[name].(*array.MapBuilder)
	m.Append(true)
	for _, a := range list {
		m.KeyBuilder().(*array.StringBuilder).Append(a.Name)
		m.ItemBuilder().(*array.StringBuilder).Append(a.Value)
	}
}

// labelsOf are the labels of the object that a payload is or has: with payload change it is a
// member, with debezium what the object was after the change, or before it.
func labelsOf(data []byte) (labels []event.Attribute) {
	if !bytes.Contains(data, []byte(`"labels"`)) {
		return nil
	}
	metadata := member(data, "metadata")
	for _, name := range []string{"object", "after", "before"} {
		if metadata == nil {
			metadata = member(member(data, name), "metadata")
		}
	}
	for w := jsontree.Parse(member(metadata, "labels")).Walk(); w.Next(); {
		if text, err := jsontext.AppendUnquote(nil, w.Value().Raw()); err == nil {
			labels = append(labels, event.Attribute{Name: w.Name(), Value: string(text)})
		}
	}
	slices.SortFunc(labels, func(a, b event.Attribute) int { return strings.Compare(a.Name, b.Name) })
	return labels
}

// member returns a member of an object that is an object; nil where there is none. It reads no
// further: in objects of Kubernetes metadata is among the first members, and most bytes are behind
// it.
func member(object []byte, name string) []byte {
	s := jsonscan.Of(object)
	for s.Open('{'); s.Next('}'); {
		isIt := string(s.Key()) == name && s.Peek() == '{'
		if value := s.Skip(); isIt && s.Err() == nil {
			return object[value.Start:value.End]
		}
	}
	return nil
}
