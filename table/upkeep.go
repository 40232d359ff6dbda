package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/iceberg-go"
	lib "github.com/apache/iceberg-go/table"

	"github.com/kubebridge/bridge/internal/event"
)

// Upkeep are the options of Maintain.
type Upkeep struct {
	Place Place
	// Keep is how long rows are kept; 0 forever. What lives stays: nothing is removed that is not
	// before a midnight with snapshot rows.
	Keep time.Duration
	// Snapshots is how long Iceberg's snapshots are kept.
	Snapshots time.Duration
	// Orphans is the age from which a file that no snapshot names is removed. A writer gives a
	// commit up that it could not make in a third of it.
	Orphans time.Duration
	// Only has what is done of compact, retain, expire and orphans; nil for all.
	Only []string
	// DryRun reports what would be done.
	DryRun bool
	Report func(format string, args ...any)

	now func() time.Time
}

// MinOrphans is the least of Upkeep.Orphans.
const MinOrphans = 3 * maxPending

// maxPending is how long files may wait for their commit.
const maxPending = 24 * time.Hour

// Tasks of Maintain, in their order.
var tasks = []string{"retain", "compact", "expire", "orphans"}

// Maintain makes the table smaller. It may run beside a writer, and beside Spark's procedures.
func Maintain(ctx context.Context, u Upkeep) error {
	if u.Orphans < MinOrphans {
		return fmt.Errorf("files may wait %s for their commit: to remove orphans, want an age of at least %s",
			maxPending, MinOrphans)
	}
	if u.now == nil {
		u.now = time.Now
	}
	c, closeCatalog, err := u.Place.open(ctx)
	if err != nil {
		return err
	}
	defer closeCatalog()
	namespace := cmp.Or(u.Place.Namespace, defaultNamespace)
	l, err := openLake(ctx, c, namespace, changes)
	if err != nil {
		return err
	}
	intervals, err := openLake(ctx, c, namespace, coverageSpec)
	if err != nil {
		return err
	}
	for _, task := range tasks {
		if len(u.Only) > 0 && !slices.Contains(u.Only, task) {
			continue
		}
		switch task {
		case "retain":
			err = u.retain(ctx, l)
		case "compact":
			err = u.compact(ctx, l)
		case "expire":
			err = errors.Join(u.expire(ctx, l), u.expire(ctx, intervals))
		case "orphans":
			err = errors.Join(u.orphans(ctx, l), u.orphans(ctx, intervals))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", task, err)
		}
	}
	return nil
}

// retain removes the days that are too old.
func (u *Upkeep) retain(ctx context.Context, l *lake) error {
	if u.Keep == 0 {
		return nil
	}
	snapshot, err := l.snapshotRows()
	if err != nil {
		return err
	}
	before := u.now().Add(-u.Keep).UTC().Truncate(day)
	if before.After(snapshot) {
		before = snapshot
	}
	// The state of what is kept begins with snapshot rows: those of a midnight at which the writer
	// did not run are missing.
	before, found, err := l.midnight(ctx, before)
	if err != nil {
		return err
	}
	if !found {
		u.Report("retain: nothing: no midnight has snapshot rows yet\n")
		return nil
	}
	isIn, err := l.inSnapshotRows(snapshot)
	if err != nil {
		return err
	}
	// What begins a state, and what is missing, is known from then on: coverage is made of it.
	filter := iceberg.NewAnd(
		iceberg.LessThan(iceberg.Reference(colTime), iceberg.Timestamp(before.UnixMicro())), isIn,
		iceberg.NewOr(aboutObjects, iceberg.NotIn(iceberg.Reference("op"), string(event.Gap), string(event.Synced))))
	files, err := l.files(ctx, filter)
	if err != nil {
		return err
	}
	rows, bytes := total(files)
	u.Report("retain: %d files, %d rows, %d bytes from before %s\n", len(files), rows, bytes, before.Format(time.DateOnly))
	if u.DryRun || len(files) == 0 {
		return nil
	}
	properties := iceberg.Properties{keyRetained: before.Format(time.RFC3339)}
	return again(ctx, l, func() error { return l.deleteRows(ctx, filter, properties) })
}

// midnight is the newest midnight with snapshot rows up to a time.
func (l *lake) midnight(ctx context.Context, until time.Time) (at time.Time, found bool, err error) {
	files, err := l.files(ctx, iceberg.NewAnd(iceberg.EqualTo(iceberg.Reference(colSnapshot), true),
		iceberg.LessThanEqual(iceberg.Reference(colTime), iceberg.Timestamp(until.UnixMicro()))))
	for _, f := range files {
		for _, v := range f.Partition() {
			if d, ok := v.(iceberg.Date); ok && (!found || int64(d)*86400 > at.Unix()) {
				at, found = time.Unix(int64(d)*86400, 0).UTC(), true
			}
		}
	}
	return at, found, err
}

// inSnapshotRows matches the rows that the newest snapshot rows were made of. What came late after
// them is in none; when it was stored says nothing: a pass ends where the stream did when it began,
// and a record may have the time of its event.
func (l *lake) inSnapshotRows(snapshot time.Time) (iceberg.BooleanExpression, error) {
	isIn := iceberg.BooleanExpression(iceberg.EqualTo(iceberg.Reference(colLate), false))
	text := l.Properties()[keyBehind]
	if text == "" {
		return isIn, nil
	}
	p, err := parsePosition(text)
	if err != nil || p.Snapshot == nil || !p.Snapshot.Equal(snapshot) {
		return isIn, err
	}
	isIn = iceberg.NewOr(isIn, iceberg.LessThan(iceberg.Reference(colIncarnation), p.Incarnation))
	for lane, at := range p.Lanes {
		isIn = iceberg.NewOr(isIn, iceberg.NewAnd(iceberg.EqualTo(iceberg.Reference(colIncarnation), p.Incarnation),
			iceberg.NewAnd(iceberg.EqualTo(iceberg.Reference(colLane), lane),
				iceberg.LessThan(iceberg.Reference(colPosition), int64(at.Next)))))
	}
	return isIn, nil
}

func total(files []iceberg.DataFile) (rows, bytes int64) {
	for _, f := range files {
		rows, bytes = rows+f.Count(), bytes+f.FileSizeBytes()
	}
	return rows, bytes
}

// targetBytes is the size of compacted files.
const targetBytes = 256 << 20

// compact rewrites the days that have ended, each into sorted files.
func (u *Upkeep) compact(ctx context.Context, l *lake) error {
	today := dayOf(u.now())
	files, err := l.files(ctx, iceberg.LessThan(iceberg.Reference(colTime), iceberg.Timestamp(today*86400*1e6)))
	if err != nil {
		return err
	}
	days := map[int64]bool{}
	for _, f := range files {
		for _, v := range f.Partition() {
			if d, ok := v.(iceberg.Date); ok && int64(d) < today {
				days[int64(d)] = true
			}
		}
	}
	for _, d := range slices.Sorted(maps.Keys(days)) {
		// Another day's commit may have loaded the table again.
		old, err := l.files(ctx, dayFilter(d))
		if err != nil {
			return err
		}
		rows, bytes := total(old)
		if int64(len(old)) <= int64(len(compactedFiles))+bytes/targetBytes {
			continue
		}
		u.Report("compact: %s: %d files, %d rows, %d bytes",
			time.Unix(d*86400, 0).UTC().Format(time.DateOnly), len(old), rows, bytes)
		if u.DryRun {
			u.Report("\n")
			continue
		}
		files, err := l.compactDay(ctx, d, old)
		if err != nil {
			return err
		}
		_, after := total(files)
		u.Report(" -> %d files, %d bytes\n", len(files), after)
	}
	return nil
}

// errChanged is returned where another process has rewritten files meanwhile.
var errChanged = errors.New("another process has rewritten this day: only one may")

// compactedFiles are what a compacted day has files for, each. A state is found by the snapshot
// rows of all days: were they among the others, each row would be read for it.
var compactedFiles = []iceberg.BooleanExpression{
	aboutInformers,
	iceberg.NewAnd(aboutObjects, iceberg.EqualTo(iceberg.Reference(colSnapshot), true)),
	iceberg.NewAnd(aboutObjects, iceberg.EqualTo(iceberg.Reference(colSnapshot), false)),
}

// compactDay replaces the files of a day.
func (l *lake) compactDay(ctx context.Context, d int64, old []iceberg.DataFile) ([]iceberg.DataFile, error) {
	schema, err := l.arrowSchema()
	if err != nil {
		return nil, err
	}
	rows, _ := total(old)
	var files []iceberg.DataFile
	for _, about := range compactedFiles {
		filter := iceberg.NewAnd(about, dayFilter(d))
		ranges, err := l.ranges(ctx, filter)
		if err != nil {
			return nil, err
		}
		more, err := l.write(ctx, schema, l.inOrder(ctx, schema, filter, ranges), maxFileGroup)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	if now, _ := total(files); now != rows {
		return nil, fmt.Errorf("%d rows became %d: the day was written to meanwhile; try again", rows, now)
	}
	return files, again(ctx, l, func() error {
		now, err := l.files(ctx, dayFilter(d))
		if err != nil {
			return err
		}
		for _, f := range old {
			if !slices.ContainsFunc(now, func(g iceberg.DataFile) bool { return g.FilePath() == f.FilePath() }) {
				return errChanged
			}
		}
		return l.commit(ctx, change{add: files, remove: old})
	})
}

// keyRange is a part of the objects in their order: behind After, up to To; "" for no bound.
type keyRange struct{ afterSource, afterKey, toSource, toKey string }

// maxSample bounds what ranges keeps in memory.
const maxSample = 100_000

// ranges parts the objects so that the rows of each part fit into memory.
func (l *lake) ranges(ctx context.Context, filter iceberg.BooleanExpression) ([]keyRange, error) {
	type sampled struct{ source, key string }
	var sample []sampled
	step, n, bytes := 1, 0, 0
	for batch, err := range l.scan(ctx, filter, "source", "partitionkey", colData) {
		if err != nil {
			return nil, err
		}
		sources, keys, data := textColumn(batch, "source"), textColumn(batch, "partitionkey"), textColumn(batch, colData)
		for i := range int(batch.NumRows()) {
			bytes += rowOverhead + data.ValueLen(i)
			if n++; n%step == 0 {
				sample = append(sample, sampled{strings.Clone(sources.Value(i)), strings.Clone(keys.Value(i))})
			}
			if len(sample) == maxSample {
				for j := range maxSample / 2 {
					sample[j] = sample[2*j+1]
				}
				sample, step = sample[:maxSample/2], 2*step
			}
		}
		batch.Release()
	}
	slices.SortFunc(sample, func(a, b sampled) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.key, b.key))
	})
	parts := bytes/maxRunBytes + 1
	var list []keyRange
	r := keyRange{}
	for i := 1; i < parts; i++ {
		s := sample[i*len(sample)/parts]
		if s.source == r.afterSource && s.key == r.afterKey {
			continue
		}
		r.toSource, r.toKey = s.source, s.key
		list = append(list, r)
		r = keyRange{afterSource: s.source, afterKey: s.key}
	}
	return append(list, r), nil
}

// filter matches the rows of a range.
func (r keyRange) filter() iceberg.BooleanExpression {
	source, key := iceberg.Reference("source"), iceberg.Reference("partitionkey")
	filter := iceberg.BooleanExpression(iceberg.AlwaysTrue{})
	if r.afterSource != "" {
		filter = iceberg.NewOr(iceberg.GreaterThan(source, r.afterSource),
			iceberg.NewAnd(iceberg.EqualTo(source, r.afterSource), iceberg.GreaterThan(key, r.afterKey)))
	}
	if r.toSource == "" {
		return filter
	}
	return iceberg.NewAnd(filter, iceberg.NewOr(iceberg.LessThan(source, r.toSource),
		iceberg.NewAnd(iceberg.EqualTo(source, r.toSource), iceberg.LessThanEqual(key, r.toKey))))
}

// inOrder yields the rows that a filter matches in the order of the table, range by range.
func (l *lake) inOrder(
	ctx context.Context, schema *arrow.Schema, filter iceberg.BooleanExpression, ranges []keyRange,
) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		s := newSorter(schema)
		defer s.release()
		for _, r := range ranges {
			for batch, err := range l.scan(ctx, iceberg.NewAnd(filter, r.filter())) {
				if err != nil {
					yield(nil, err)
					return
				}
				for i := range int(batch.NumRows()) {
					s.add(batch, i, nil)
				}
				batch.Release()
			}
			for batch, err := range s.sorted() {
				if !yield(batch, err) {
					return
				}
			}
		}
	}
}

// expire removes old snapshots of Iceberg. The position stays: it is a property of the table too.
func (u *Upkeep) expire(ctx context.Context, l *lake) error {
	if l.keepsFiles() {
		u.Report("expire: %s: nothing: %s is false, so its catalog does that\n", l.name[1], lib.GCEnabledKey)
		return nil
	}
	old, all := 0, 0
	for _, s := range l.Metadata().Snapshots() {
		if all++; time.UnixMilli(s.TimestampMs).Before(u.now().Add(-u.Snapshots)) {
			old++
		}
	}
	u.Report("expire: %s: %d of %d snapshots are older than %s\n", l.name[1], old, all, u.Snapshots)
	if u.DryRun || old == 0 {
		return nil
	}
	return again(ctx, l, func() error { return l.expire(ctx, u.Snapshots) })
}

// orphans removes files that no snapshot names: those of writers that were killed.
func (u *Upkeep) orphans(ctx context.Context, l *lake) error {
	if l.keepsFiles() {
		u.Report("orphans: %s: nothing: %s is false, so its catalog does that\n", l.name[1], lib.GCEnabledKey)
		return nil
	}
	if err := l.reload(ctx); err != nil {
		return err
	}
	options := []lib.OrphanCleanupOption{lib.WithFilesOlderThan(u.Orphans), lib.WithDryRun(u.DryRun)}
	result, err := l.DeleteOrphanFiles(ctx, options...)
	if err != nil {
		return err
	}
	u.Report("orphans: %s: %d files\n", l.name[1], len(result.OrphanFileLocations))
	return nil
}
