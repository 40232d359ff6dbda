package table

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
)

// coverageSpec is the table coverage: of each resource of an informer what was read without a
// break, and the gaps between. It is made of the rows about informers, and replaced as a whole.
var coverageSpec = spec{
	name: "coverage",
	sort: []string{"cluster", "informer", "resource", "since"},
	schema: func() *iceberg.Schema {
		var fields []iceberg.NestedField
		for i, name := range []string{
			"cluster", "informer", "resource", "namespace", "shard", "gap", "object", "fromversion", "toversion",
		} {
			fields = append(fields, iceberg.NestedField{ID: i + 1, Name: name, Type: iceberg.PrimitiveTypes.String})
		}
		for _, name := range []string{"since", "until"} {
			fields = append(fields, iceberg.NestedField{
				ID: len(fields) + 1, Name: name, Type: iceberg.PrimitiveTypes.TimestampTz,
			})
		}
		fields = append(fields, iceberg.NestedField{
			ID: len(fields) + 1, Name: "unwatched", Type: iceberg.PrimitiveTypes.Int64,
			Doc: "seconds of the longest time without a watch: what changed then was read later",
		})
		return iceberg.NewSchema(0, fields...)
	}(),
}

// coveragePause is the least between two commits of coverage, unless a list or a gap came.
const coveragePause = 10 * time.Minute

// coverage keeps the rows about informers in a history of its own, which knows what they come to.
// Its directory lives as long as the process.
type coverage struct {
	dir     string
	db      *history.DB
	lake    *lake
	written time.Time
	// isDue is set for news that can wait, isUrgent for a list or a gap.
	isDue, isUrgent bool
}

// openCoverage reads the rows that the table changes has.
func openCoverage(ctx context.Context, c catalog.Catalog, namespace string, from *lake) (*coverage, error) {
	dir, err := os.MkdirTemp("", "bridge-table-")
	if err != nil {
		return nil, err
	}
	o := &coverage{dir: dir}
	o.db, err = history.Open(history.Options{Dir: dir, LastVersionsBytes: 1 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if o.lake, err = openLake(ctx, c, namespace, coverageSpec); err != nil {
		return o, err
	}
	if from.CurrentSnapshot() == nil {
		return o, nil
	}
	for batch, err := range from.scan(ctx, aboutInformers) {
		if err != nil {
			return o, err
		}
		if err := o.add(ctx, eventsOf(batch)); err != nil {
			return o, err
		}
		batch.Release()
	}
	return o, nil
}

func (o *coverage) close() {
	if o != nil {
		_ = o.db.Close() // it is removed
		_ = os.RemoveAll(o.dir)
	}
}

// eventsOf are rows about informers as the events that they were.
func eventsOf(batch arrow.RecordBatch) (events []*event.Event) {
	times := batch.Column(batch.Schema().FieldIndices(colTime)[0]).(*array.Timestamp)
	for i := range int(batch.NumRows()) {
		text := func(name string) string { return strings.Clone(textColumn(batch, name).Value(i)) }
		e := &event.Event{
			ID: text("id"), Source: text("source"), Type: text("type"), Subject: text("subject"),
			PartitionKey: text("partitionkey"), Sequence: text(colSequence), Informer: text("informer"),
			Op: event.Op(text("op")), Time: times.Value(i).ToTime(arrow.Microsecond), Data: []byte(text(colData)),
			ObjectAttributes: event.ObjectAttributes{
				APIVersion: text("apiversion"), Kind: text("kind"), Resource: text("resource"), Namespace: text("namespace"),
			},
			Routing: event.Routing{Group: text("apigroup")},
		}
		if v := batch.Column(batch.Schema().FieldIndices(colVersion)[0]).(*array.Int64); v.IsValid(i) {
			e.ResourceVersion = fmt.Sprint(v.Value(i))
		}
		events = append(events, e)
	}
	return events
}

// add takes news about informers.
func (o *coverage) add(ctx context.Context, events []*event.Event) error {
	for _, e := range events {
		o.isDue = true
		o.isUrgent = o.isUrgent || e.Op == event.Gap || e.Op == event.Synced
	}
	_, err := o.db.Writer.Append(ctx, events)
	return err
}

// store replaces the table by what is known now, when that is due.
func (o *coverage) store(ctx context.Context, now time.Time) error {
	if !o.isUrgent && (!o.isDue || now.Sub(o.written) < coveragePause) {
		return nil
	}
	list, err := o.db.Questions.Coverage.Intervals(query.CoverageQuery{
		Units: o.db.Questions.Resources.Units(), Namespace: "*",
	})
	if err != nil || len(list) == 0 {
		return err
	}
	schema, err := o.lake.arrowSchema()
	if err != nil {
		return err
	}
	records := newRecordBuilder(schema)
	defer records.Release()
	b := newBuilder(schema, records)
	for i := range list {
		b.addInterval(&list[i])
	}
	batch := records.NewRecordBatch()
	defer batch.Release()
	if err := o.lake.reload(ctx); err != nil {
		return err
	}
	if err := o.lake.replace(ctx, schema, batch); err != nil {
		return err
	}
	o.isDue, o.isUrgent, o.written = false, false, now
	return nil
}

func (b *builder) addInterval(i *query.Interval) {
	for name, value := range map[string]string{
		"cluster": i.Cluster, "informer": i.Informer, "resource": i.Resource, "namespace": i.Namespace,
		"shard": i.Shard, "gap": i.Gap, "object": i.Object, "fromversion": i.From, "toversion": i.To,
	} {
		b.text(name, value)
	}
	b.time("since", i.Since)
	b.time("until", i.Until)
	b.number("unwatched", int64(i.LongestUnwatched()/time.Second))
}
