package table

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/zeebo/xxh3"

	"github.com/kubebridge/bridge/internal/resource"
)

// maxObjects are looked at in one reading of the table: some 300 MB at most. More objects are read
// in parts.
const maxObjects = 2_000_000

// snapshotDue writes the snapshot rows of the newest midnight, once the stream is read behind it.
func (w *writer) snapshotDue(ctx context.Context) error {
	midnight := w.now().UTC().Truncate(day)
	if !w.snapshot.Before(midnight) {
		return nil
	}
	if err := w.store(ctx); err != nil || w.lake.CurrentSnapshot() == nil {
		return err
	}
	if w.snapshot.IsZero() && !w.lake.begins(ctx, midnight) {
		return nil // the table has nothing from before
	}
	files, rows, err := w.snapshotRows(ctx, midnight)
	if err != nil {
		return storeError{fmt.Errorf("snapshot rows of %s: %w", midnight.Format(time.DateOnly), err)}
	}
	if w.snapshot = midnight; rows == 0 {
		return nil // there is nothing to commit
	}
	text := midnight.Format(time.RFC3339)
	c := change{
		add:        files,
		summary:    map[string]string{keySnapshot: text},
		properties: map[string]string{keySnapshot: text},
	}
	if err := w.commitAs(ctx, c, position{Lanes: w.at.Lanes, Writer: w.name}); err != nil {
		return storeError{err}
	}
	w.report.Snapshot += rows
	w.Log.Info("the last row of every living object is in the table again", "at", text, "rows", rows)
	return nil
}

// begins reports whether a row is from before a time.
func (l *lake) begins(ctx context.Context, before time.Time) bool {
	files, err := l.files(ctx, iceberg.LessThan(iceberg.Reference(colTime), iceberg.Timestamp(before.UnixMicro())))
	return err == nil && len(files) > 0
}

// objectKey is the object of an informer of a cluster, as a hash.
type objectKey = xxh3.Uint128

// lastRow is the newest row of an object.
type lastRow struct {
	sequence  string
	isDeleted bool
}

// forgotten is a gap after which what does not come again is gone.
type forgotten struct {
	source, informer, group, resource, namespace string
	shard                                        resource.Shard
	era                                          string
}

// eraLength is that of the part of a sequence that grows with a gap.
const eraLength = 9

// snapshotRows writes the rows to files. The state begins with the snapshot rows before.
func (w *writer) snapshotRows(ctx context.Context, at time.Time) (files []iceberg.DataFile, rows int, err error) {
	filter := stateFilter(w.snapshot, at)
	gaps, err := w.lake.forgotten(ctx, filter)
	if err != nil {
		return nil, 0, err
	}
	tasks, err := w.lake.files(ctx, filter)
	if err != nil {
		return nil, 0, err
	}
	count := int64(0)
	for _, f := range tasks {
		count += f.Count()
	}
	parts := uint64(count/maxObjects + 1)
	s := newSorter(w.schema)
	defer s.release()
	write := func() error {
		rows += s.count
		more, err := w.lake.write(ctx, w.schema, s.sorted(), maxRunGroup)
		files = append(files, more...)
		return err
	}
	for part := range parts {
		last, err := w.lake.lastRows(ctx, filter, gaps, part, parts)
		if err != nil {
			return nil, 0, err
		}
		for batch, err := range w.lake.scan(ctx, filter) {
			if err != nil {
				return nil, 0, err
			}
			keys := keysOf(batch)
			sequences := textColumn(batch, colSequence)
			times := batch.Column(batch.Schema().FieldIndices(colTime)[0]).(*array.Timestamp)
			changed := batch.Column(batch.Schema().FieldIndices(colChanged)[0]).(*array.Timestamp)
			for i := range int(batch.NumRows()) {
				key := keys.at(i)
				l, found := last[key]
				if !found || l.isDeleted || l.sequence != sequences.Value(i) {
					continue
				}
				delete(last, key)
				since := times.Value(i)
				if changed.IsValid(i) {
					since = changed.Value(i)
				}
				s.add(batch, i, snapshotColumns(at, since))
				if s.bytes >= maxRunBytes {
					if err := write(); err != nil {
						return nil, 0, err
					}
				}
			}
			batch.Release()
		}
	}
	if s.count > 0 {
		err = write()
	}
	return files, rows, err
}

// snapshotColumns are the columns in which a snapshot row differs from the row that it repeats.
func snapshotColumns(at time.Time, since arrow.Timestamp) map[string]func(array.Builder) {
	flag := func(v bool) func(array.Builder) {
		return func(b array.Builder) { b.(*array.BooleanBuilder).Append(v) }
	}
	moment := func(v arrow.Timestamp) func(array.Builder) {
		return func(b array.Builder) { b.(*array.TimestampBuilder).Append(v) }
	}
	return map[string]func(array.Builder){
		colSnapshot: flag(true), colLate: flag(false),
		colTime: moment(arrow.Timestamp(at.UnixMicro())), colChanged: moment(since),
	}
}

// stateFilter matches the rows that make the state at a time: from the snapshot rows on, and what
// came late.
func stateFilter(snapshot, at time.Time) iceberg.BooleanExpression {
	filter := iceberg.BooleanExpression(
		iceberg.LessThanEqual(iceberg.Reference(colTime), iceberg.Timestamp(at.UnixMicro())))
	if snapshot.IsZero() {
		return filter
	}
	return iceberg.NewAnd(filter, iceberg.NewOr(
		iceberg.GreaterThanEqual(iceberg.Reference(colTime), iceberg.Timestamp(snapshot.UnixMicro())),
		iceberg.EqualTo(iceberg.Reference(colLate), true)))
}

// Filters by what a row is about. Those about informers are in files of their own.
var (
	aboutObjects   = iceberg.NotEqualTo(iceberg.Reference("name"), "")
	aboutInformers = iceberg.EqualTo(iceberg.Reference("name"), "")
)

// objectKeys are the columns that name an object.
type objectKeys []*array.String

func keysOf(batch arrow.RecordBatch) (k objectKeys) {
	for _, name := range objectColumns {
		k = append(k, textColumn(batch, name))
	}
	return k
}

var objectColumns = []string{"source", "informer", "apigroup", "resource", "namespace", "name"}

func (k objectKeys) at(i int) objectKey {
	var b strings.Builder
	for _, c := range k {
		b.WriteString(c.Value(i))
		b.WriteByte(0)
	}
	return xxh3.HashString128(b.String())
}

// lastRows reads the newest row of each object of a part, of those that a gap has not forgotten.
func (l *lake) lastRows(
	ctx context.Context, filter iceberg.BooleanExpression, gaps []forgotten, part, parts uint64,
) (map[objectKey]lastRow, error) {
	last := map[objectKey]lastRow{}
	columns := append([]string{colSequence, colDeleted}, objectColumns...)
	for batch, err := range l.scan(ctx, iceberg.NewAnd(aboutObjects, filter), columns...) {
		if err != nil {
			return nil, err
		}
		keys, sequences := keysOf(batch), textColumn(batch, colSequence)
		deleted := batch.Column(batch.Schema().FieldIndices(colDeleted)[0]).(*array.Boolean)
		for i := range int(batch.NumRows()) {
			key := keys.at(i)
			sequence := sequences.Value(i)
			if key.Lo%parts != part || last[key].sequence >= sequence && sequence != "" {
				continue
			}
			last[key] = lastRow{strings.Clone(sequence), deleted.Value(i) || keys.isForgotten(i, sequence, gaps)}
		}
		batch.Release()
	}
	return last, nil
}

// isForgotten reports whether a gap says that the object is gone, unless it comes again.
func (k objectKeys) isForgotten(i int, sequence string, gaps []forgotten) bool {
	for j := range gaps {
		g := &gaps[j]
		namespace, name := k[4].Value(i), k[5].Value(i)
		if k[0].Value(i) == g.source && k[1].Value(i) == g.informer && k[2].Value(i) == g.group &&
			k[3].Value(i) == g.resource && (g.namespace == "" || g.namespace == namespace) &&
			sequence < g.era &&
			g.shard.Has(resource.Type{Group: g.group, Resource: g.resource}, namespace, name) {
			return true
		}
	}
	return false
}

var shardOf = regexp.MustCompile(`/shard-([0-9]+)-of-([0-9]+)`)

// forgotten reads the gaps after which what does not come again is gone.
func (l *lake) forgotten(ctx context.Context, filter iceberg.BooleanExpression) (gaps []forgotten, err error) {
	filter = iceberg.NewAnd(aboutInformers, filter, iceberg.EqualTo(iceberg.Reference("op"), "gap"))
	for batch, err := range l.scan(ctx, filter, append([]string{"id", colSequence, colData}, objectColumns...)...) {
		if err != nil {
			return nil, err
		}
		keys, ids := keysOf(batch), textColumn(batch, "id")
		sequences, data := textColumn(batch, colSequence), textColumn(batch, colData)
		for i := range int(batch.NumRows()) {
			var of struct {
				Reason string `json:"reason"`
			}
			if json.Unmarshal([]byte(data.Value(i)), &of) != nil || of.Reason != "forgotten" {
				continue
			}
			g := forgotten{
				source: keys[0].Value(i), informer: keys[1].Value(i), group: keys[2].Value(i),
				resource: keys[3].Value(i), namespace: keys[4].Value(i), era: sequences.Value(i),
			}
			g.era = strings.Clone(g.era[:min(len(g.era), eraLength)])
			if m := shardOf.FindStringSubmatch(ids.Value(i)); m != nil {
				if g.shard, err = resource.ParseShard(m[1] + "/" + m[2]); err != nil {
					return nil, err
				}
			}
			g.source, g.informer, g.group = strings.Clone(g.source), strings.Clone(g.informer), strings.Clone(g.group)
			g.resource, g.namespace = strings.Clone(g.resource), strings.Clone(g.namespace)
			gaps = append(gaps, g)
		}
		batch.Release()
	}
	return gaps, nil
}
