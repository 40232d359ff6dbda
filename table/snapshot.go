package table

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/zeebo/xxh3"

	"github.com/kubebridge/bridge/internal/event"
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
	isBefore := func(r *row) bool { return r.Time.Before(midnight) }
	if w.snapshot.IsZero() && len(w.files) == 0 && !slices.ContainsFunc(w.rows, isBefore) &&
		(w.lake.CurrentSnapshot() == nil || !w.lake.begins(ctx, midnight)) {
		return nil // the table has nothing from before
	}
	if err := w.store(ctx); err != nil || w.lake.CurrentSnapshot() == nil {
		return err
	}
	if w.snapshot.IsZero() && !w.lake.begins(ctx, midnight) {
		return nil
	}
	files, rows, err := w.snapshotRows(ctx, midnight)
	if err != nil {
		return storeError{fmt.Errorf("snapshot rows of %s: %w", midnight.Format(time.DateOnly), err)}
	}
	if w.snapshot = midnight; rows == 0 {
		return nil // there is nothing to commit
	}
	text, behind := midnight.Format(time.RFC3339), w.at.clone()
	behind.Newest, behind.Snapshot = nil, &midnight
	c := change{
		add:        files,
		summary:    map[string]string{keySnapshot: text},
		properties: map[string]string{keySnapshot: text, keyBehind: behind.String()},
	}
	if err := w.commitAs(ctx, c, w.at); err != nil {
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

// place orders the rows of an object. A new stream may begin with sequences that the one before has
// had.
type place struct {
	incarnation int64
	sequence    string
}

func (p place) isBefore(q place) bool {
	return cmp.Or(cmp.Compare(p.incarnation, q.incarnation), cmp.Compare(p.sequence, q.sequence)) < 0
}

// lastRow is the newest row of an object.
type lastRow struct {
	place
	isDeleted bool
}

// beginning is of a state: what has no row from there on is gone.
type beginning struct {
	source, informer, group, resource, namespace string
	shard                                        resource.Shard
	place
}

// eraLength is that of the part of a sequence that grows with a gap.
const eraLength = 9

// snapshotRows writes the rows to files. The state begins with the snapshot rows before.
func (w *writer) snapshotRows(ctx context.Context, at time.Time) (files []iceberg.DataFile, rows int, err error) {
	filter := iceberg.NewAnd(aboutVersions, stateFilter(w.snapshot, at))
	begun, err := w.lake.beginnings(ctx, stateFilter(w.snapshot, at))
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
		last, err := w.lake.lastRows(ctx, filter, begun, part, parts)
		if err != nil {
			return nil, 0, err
		}
		for batch, err := range w.lake.scan(ctx, filter) {
			if err != nil {
				return nil, 0, err
			}
			keys, places := keysOf(batch), placesOf(batch)
			times := batch.Column(batch.Schema().FieldIndices(colTime)[0]).(*array.Timestamp)
			changed := batch.Column(batch.Schema().FieldIndices(colChanged)[0]).(*array.Timestamp)
			for i := range int(batch.NumRows()) {
				key := keys.at(i)
				l, found := last[key]
				if !found || l.isDeleted || l.place != places(i) {
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

// Filters by what a row is about. Those about informers are in files of their own. Of those about
// objects some say who made a change; all others are versions.
var (
	aboutObjects   = iceberg.NotEqualTo(iceberg.Reference("name"), "")
	aboutInformers = iceberg.EqualTo(iceberg.Reference("name"), "")
	aboutVersions  = iceberg.NewAnd(aboutObjects,
		iceberg.NotEqualTo(iceberg.Reference("op"), string(event.Attributed)))
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

// placesOf returns the places of rows. They are those of the batch.
func placesOf(batch arrow.RecordBatch) func(i int) place {
	incarnations := batch.Column(batch.Schema().FieldIndices(colIncarnation)[0]).(*array.Int64)
	sequences := textColumn(batch, colSequence)
	return func(i int) place { return place{incarnations.Value(i), sequences.Value(i)} }
}

// lastRows reads the newest row of each object of a part, of those that exist.
func (l *lake) lastRows(
	ctx context.Context, filter iceberg.BooleanExpression, begun []beginning, part, parts uint64,
) (map[objectKey]lastRow, error) {
	last := map[objectKey]lastRow{}
	columns := append([]string{colIncarnation, colSequence, colDeleted}, objectColumns...)
	for batch, err := range l.scan(ctx, filter, columns...) {
		if err != nil {
			return nil, err
		}
		keys, places := keysOf(batch), placesOf(batch)
		deleted := batch.Column(batch.Schema().FieldIndices(colDeleted)[0]).(*array.Boolean)
		for i := range int(batch.NumRows()) {
			key, p := keys.at(i), places(i)
			if was, found := last[key]; key.Lo%parts != part || found && !was.isBefore(p) {
				continue
			}
			isGone := deleted.Value(i) || slices.ContainsFunc(begun, func(b beginning) bool { return keys.isLeftBy(i, p, &b) })
			p.sequence = strings.Clone(p.sequence)
			last[key] = lastRow{p, isGone}
		}
		batch.Release()
	}
	return last, nil
}

// isLeftBy reports whether the object is gone because its row is from before a state began.
func (k objectKeys) isLeftBy(i int, p place, b *beginning) bool {
	namespace, name := k[4].Value(i), k[5].Value(i)
	return k[0].Value(i) == b.source && k[1].Value(i) == b.informer && k[2].Value(i) == b.group &&
		k[3].Value(i) == b.resource && (b.namespace == "" || b.namespace == namespace) && p.isBefore(b.place) &&
		b.shard.Has(resource.Type{Group: b.group, Resource: b.resource}, namespace, name)
}

var shardOf = regexp.MustCompile(`/shard-([0-9]+)-of-([0-9]+)`)

// beginnings reads where states begin: at a gap `forgotten`, after which sequences begin with a
// greater number, and with a stream in which a first list has ended.
func (l *lake) beginnings(ctx context.Context, filter iceberg.BooleanExpression) (begun []beginning, err error) {
	filter = iceberg.NewAnd(aboutInformers, filter, iceberg.IsIn(iceberg.Reference("op"), "gap", "synced"))
	columns := append([]string{"id", "op", colIncarnation, colSequence, colData}, objectColumns...)
	for batch, err := range l.scan(ctx, filter, columns...) {
		if err != nil {
			return nil, err
		}
		keys, ids, ops := keysOf(batch), textColumn(batch, "id"), textColumn(batch, "op")
		places, data := placesOf(batch), textColumn(batch, colData)
		for i := range int(batch.NumRows()) {
			gap := ops.Value(i) == "gap"
			if news := newsOf([]byte(data.Value(i))); gap && news.Reason != "forgotten" || !gap && !news.First {
				continue
			}
			text := func(c *array.String) string { return strings.Clone(c.Value(i)) }
			b := beginning{
				source: text(keys[0]), informer: text(keys[1]), group: text(keys[2]),
				resource: text(keys[3]), namespace: text(keys[4]), place: places(i),
			}
			if b.sequence = strings.Clone(b.sequence[:min(len(b.sequence), eraLength)]); !gap {
				b.sequence = ""
			}
			if m := shardOf.FindStringSubmatch(ids.Value(i)); m != nil {
				if b.shard, err = resource.ParseShard(m[1] + "/" + m[2]); err != nil {
					return nil, err
				}
			}
			begun = append(begun, b)
		}
		batch.Release()
	}
	return begun, nil
}

// news is what an event about an informer says that begins a state, or ends it.
type news struct {
	Reason string `json:"reason"`
	First  bool   `json:"first"`
}

func newsOf(data []byte) (n news) {
	_ = json.Unmarshal(data, &n) // another payload says neither
	return n
}
