package table

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/iceberg-go"
	lib "github.com/apache/iceberg-go/table"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// Options of Run.
type Options struct {
	Source source.Config
	Place  Place
	// Interval is how long a row waits for its commit; default 5 min.
	Interval time.Duration
	// Once ends at the end that the stream has when it is reached. Else the stream is followed.
	Once bool
	// Recreated begins a stream that was recreated, and writes a gap. Else it is an error.
	Recreated bool
	Log       *slog.Logger

	// wrap puts something before the catalog in tests.
	wrap func(lib.CatalogIO) lib.CatalogIO
	now  func() time.Time
}

// Bounds of what is in memory, and of a commit.
const (
	// maxRunBytes are sorted and written as one file of each day.
	maxRunBytes = 80 << 20
	// maxCommitBytes is when a commit does not wait for its interval.
	maxCommitBytes = 64 << 20
	// MaxRemembered is how many messages of a lane a repeat may lie behind the first.
	MaxRemembered = 1_000_000

	defaultInterval = 5 * time.Minute
	followPause     = time.Second
	maxRetryPause   = 30 * time.Second
)

// ErrOtherWriter is the error for a table into which another process writes.
var ErrOtherWriter = errors.New("another process writes this table: one writer per table; stop one of them")

// Report is what one Run has done.
type Report struct {
	// Messages that were read. Rows were written, Repeats were there, Other are no events of a
	// bridge.
	Messages, Rows, Repeats, Other int
	// Snapshot rows that were written, and Commits of rows.
	Snapshot, Commits int
}

// writer is one Run. All of it is owned by the goroutine that calls Run.
type writer struct {
	Options
	lake   *lake
	name   string
	schema *arrow.Schema
	report Report
	// at is the position of the newest commit, and read how far the stream was read.
	at, read position
	// snapshot is the newest midnight whose snapshot rows are in the table.
	snapshot time.Time
	seen     *remembered
	coverage *coverage
	// rows wait to be sorted; files are written and wait for their commit.
	rows    []*row
	bytes   int
	files   []iceberg.DataFile
	written int64
	oldest  time.Time // when the first row came that waits
	removed int       // of the reader's removals those that have rows
}

// Run writes what a stream has into the tables, until ctx ends or, with Once, the stream does.
func Run(ctx context.Context, o Options) (*Report, error) {
	w, closeCatalog, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer closeCatalog()
	err = w.run(ctx)
	return &w.report, err
}

// open opens the tables and reads back where a writer resumes. The function closes the catalog.
func open(ctx context.Context, o Options) (_ *writer, closeCatalog func(), err error) {
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	if o.Interval > maxPending {
		return nil, nil, fmt.Errorf("interval %s: files that wait for longer than %s may be removed as orphans",
			o.Interval, maxPending)
	}
	if o.now == nil {
		o.now = time.Now
	}
	c, closeOpened, err := o.Place.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { // a return of an error sets closeCatalog to nil
		if err != nil {
			closeOpened()
		}
	}()
	namespace := cmp.Or(o.Place.Namespace, defaultNamespace)
	l, err := openLake(ctx, c, namespace, changes)
	if err != nil {
		return nil, nil, err
	}
	if o.wrap != nil {
		l.catalog = o.wrap(l.catalog)
		l.set(l.Table)
	}
	w := &writer{Options: o, lake: l, name: rand.Text()}
	if w.schema, err = l.arrowSchema(); err != nil {
		return nil, nil, err
	}
	if err = w.resume(ctx); err != nil {
		return nil, nil, err
	}
	if w.coverage, err = openCoverage(ctx, c, namespace, l); err != nil {
		return nil, nil, fmt.Errorf("table coverage: %w", err)
	}
	return w, closeOpened, nil
}

// resume reads the position back, and the ids of the newest rows.
func (w *writer) resume(ctx context.Context) error {
	if text, found := w.lake.find(keyPosition); found {
		p, err := parsePosition(text)
		if err != nil {
			return err
		}
		if w.lake.isBehind(p) {
			return fmt.Errorf("the table was rolled back to a snapshot without a position: "+
				"the property %s is of a later one; remove it to read the stream from its start", keyPosition)
		}
		w.at = *p
	}
	w.read = w.at.clone()
	if w.read.Newest == nil {
		w.read.Newest = map[string]time.Time{}
	}
	if w.read.Began == nil {
		w.read.Began = map[string]int64{}
	}
	var err error
	if w.snapshot, err = w.lake.snapshotRows(); err != nil {
		return err
	}
	w.seen = newRemembered(MaxRemembered)
	return w.seen.load(ctx, w.lake, &w.at)
}

// run reads until the end, or follows. A broker that can't be reached after it was is waited for.
func (w *writer) run(ctx context.Context) error {
	for pause := followPause; ; {
		before := w.report.Messages
		err := w.follow(ctx)
		var failed storeError
		var other *source.RecreatedError
		switch {
		case ctx.Err() != nil:
			// What was read and is not in the table is read again by the next start; to commit it
			// now saves that.
			return w.commit(context.WithoutCancel(ctx))
		case err == nil:
			return nil
		case errors.As(err, &other) && w.Recreated:
			w.begin(other)
			continue
		case errors.As(err, &other):
			return fmt.Errorf("%w: its messages are others than those in the table; to note a gap and "+
				"read it from its start, run once with --recreated", err)
		case errors.As(err, &failed), w.report.Messages == 0 && w.report.Commits == 0, w.Once:
			return err
		case w.report.Messages > before:
			pause = followPause
		}
		// What was read does not wait for the stream.
		if err := w.storeDue(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		w.Log.Warn("the stream can't be read now; trying again", "err", err, "pause", pause.String())
		if ratelimit.Sleep(ctx, pause) != nil {
			continue
		}
		pause = min(2*pause, maxRetryPause)
	}
}

// storeError is of the table, rather than of the stream.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

// begin notes that a stream is another one, and that it is read from its start. A bridge that has
// lost its state too sends ids that it has sent before: those of the stream before are no repeats.
func (w *writer) begin(other *source.RecreatedError) {
	w.Log.Warn("the stream was recreated: it is read from its start", "stream", other.Name)
	w.read.Incarnation++
	for lane, at := range w.read.Lanes {
		if other.Has(lane) {
			w.keepNotice(source.Removal{Lane: lane, From: at.Next, To: at.Next + 1}, query.ReasonRecreated, w.now())
			w.read.Began[lane] = w.read.Incarnation
			delete(w.read.Lanes, lane)
			delete(w.read.Newest, lane)
		}
	}
}

// keepNotice adds the row about messages that could not be read, which were stored until a time.
func (w *writer) keepNotice(r source.Removal, reason string, until time.Time) {
	since := w.read.Newest[r.Lane]
	data, err := json.Marshal(query.Removal{
		Reason: reason, Lane: r.Lane, From: strconv.FormatUint(r.From, 10),
		To: strconv.FormatUint(r.To-1, 10), Since: since, Until: until, Singly: r.Singly,
	})
	if err != nil {
		panic(err) // it has texts and times
	}
	w.keep(&row{lane: r.Lane, position: int64(r.From), stored: until, Event: event.Event{
		ID:     fmt.Sprintf("%s/%d/%s/%d/%d", reason, w.read.Incarnation, r.Lane, r.From, r.To),
		Source: record.ArchiveSource, Type: query.TypeRemoved, Op: event.Gap, Time: until, Data: data,
	}})
}

// follow reads from where the writer is.
func (w *writer) follow(ctx context.Context) error {
	cfg := w.Source
	cfg.After = maps.Clone(w.read.Lanes)
	reader, err := source.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer reader.Close()
	w.removed = 0
	for {
		if err := w.readToEnd(ctx, reader); err != nil {
			return err
		}
		w.Recreated = false // one that is recreated later is another matter
		if err := w.snapshotDue(ctx); err != nil {
			return err
		}
		if w.Once {
			return w.store(ctx)
		}
		if err := w.storeDue(ctx); err != nil {
			return err
		}
		if err := ratelimit.Sleep(ctx, followPause); err != nil {
			return err
		}
	}
}

// readToEnd reads to the end that the stream has now.
func (w *writer) readToEnd(ctx context.Context, reader source.Reader) error {
	for m, err := range reader.Messages(ctx) {
		if err != nil {
			// The reader's position is behind what it has noted.
			w.noteRemoved(reader, w.now())
			return err
		}
		until := m.Stored
		if until.IsZero() {
			until = w.now()
		}
		w.noteRemoved(reader, until)
		w.report.Messages++
		switch {
		case m.Damaged:
			to := max(reader.Position()[m.Lane].Next, m.Offset+1)
			w.keepNotice(source.Removal{Lane: m.Lane, From: m.Offset, To: to}, query.ReasonDamaged, until)
		case m.Other != "", m.Event.Op == "":
			w.report.Other++
		default:
			w.add(m)
		}
		w.read.Lanes = reader.Position()
		if !m.Damaged {
			w.read.Newest[m.Lane] = until
		}
		if err := w.spillFull(ctx); err != nil {
			return err
		}
		if err := w.storeDue(ctx); err != nil {
			return err
		}
	}
	w.noteRemoved(reader, w.now())
	w.read.Lanes = reader.Position()
	return nil
}

// noteRemoved adds a gap for what the stream has removed before it could be read.
func (w *writer) noteRemoved(reader source.Reader, until time.Time) {
	for list := reader.Removed(); w.removed < len(list); w.removed++ {
		w.keepNotice(list[w.removed], query.ReasonRemoved, until)
	}
}

// add adds the row of a message, unless it is a repeat.
func (w *writer) add(m *source.Message) {
	if !w.seen.add(hashOf(w.read.Began[m.Lane], m.Event.Source, m.Event.Informer, m.Event.ID)) {
		w.report.Repeats++
		return
	}
	w.keep(newRow(m))
}

func (w *writer) keep(r *row) {
	if w.oldest.IsZero() {
		w.oldest = w.now()
	}
	r.late, r.incarnation = r.Op != event.Attributed && r.Time.Before(w.snapshot), w.read.Incarnation
	w.rows = append(w.rows, r)
	w.bytes += r.size()
}

// spillFull writes the rows to files when there are enough of them.
func (w *writer) spillFull(ctx context.Context) error {
	if w.bytes < maxRunBytes {
		return nil
	}
	return w.spill(ctx)
}

// spill sorts the rows and writes them to files, one for each day.
func (w *writer) spill(ctx context.Context) error {
	if len(w.rows) == 0 {
		return nil
	}
	slices.SortFunc(w.rows, compareRows)
	var informers, objects []*row
	for _, r := range w.rows {
		if r.Name == "" {
			informers = append(informers, r)
		} else {
			objects = append(objects, r)
		}
	}
	if err := w.coverage.add(informers); err != nil {
		return storeError{err}
	}
	// What is about informers is asked for by itself, and has its own files. The files of one part
	// alone are given up: a writer that is stopped writes all rows again.
	var files []iceberg.DataFile
	for _, rows := range [][]*row{informers, objects} {
		more, err := w.lake.write(ctx, w.schema, batchesOf(w.schema, rows), maxRunGroup)
		if err != nil {
			return storeError{fmt.Errorf("write rows: %w", err)}
		}
		files = append(files, more...)
	}
	_, bytes := total(files)
	w.files, w.written = append(w.files, files...), w.written+bytes
	w.report.Rows += len(w.rows)
	w.rows, w.bytes = nil, 0
	return nil
}

// Bounds of a record batch.
const (
	maxBatchRows  = 1024
	maxBatchBytes = 4 << 20
)

// batchesOf makes record batches of rows, each of one day.
func batchesOf(schema *arrow.Schema, rows []*row) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		records := newRecordBuilder(schema)
		defer records.Release()
		b := newBuilder(schema, records)
		count, bytes := 0, 0
		for i, r := range rows {
			if count == 0 {
				b.reserve(rows[i:min(i+maxBatchRows, len(rows))])
			}
			b.add(r)
			count, bytes = count+1, bytes+r.size()
			isLast := i == len(rows)-1 || dayOf(rows[i+1].Time) != dayOf(r.Time)
			if !isLast && count < maxBatchRows && bytes < maxBatchBytes {
				continue
			}
			if !yield(records.NewRecordBatch(), nil) {
				return
			}
			count, bytes = 0, 0
		}
	}
}

// storeDue commits when the oldest row has waited for long enough, or there is enough to commit.
func (w *writer) storeDue(ctx context.Context) error {
	if w.written < maxCommitBytes && (w.oldest.IsZero() || w.now().Sub(w.oldest) < w.Interval) {
		return nil
	}
	return w.store(ctx)
}

func (w *writer) store(ctx context.Context) error {
	if err := w.commit(ctx); err != nil {
		return storeError{err}
	}
	return nil
}

// commit puts everything that was read into the table, with the position behind it. It returns
// when it is known whether the table has it.
func (w *writer) commit(ctx context.Context) error {
	if err := w.spill(ctx); err != nil {
		return err
	}
	if len(w.files) == 0 {
		return nil
	}
	if err := w.commitAs(ctx, change{add: w.files}, w.read.clone()); err != nil {
		return err
	}
	w.files, w.written, w.oldest = nil, 0, time.Time{}
	w.report.Commits++
	// The table coverage is made of this one, and can wait: the next commit or start makes it
	// again.
	if err := w.coverage.store(ctx, w.now()); err != nil {
		w.Log.Warn("the table coverage is behind", "err", err)
	}
	return nil
}

// commitAs commits a change with the position p. A commit that failed, or whose answer was lost,
// is looked for in the table before it is sent again. Others than writers commit too, compaction
// for one: on top of theirs it is sent again, as long as the position is the one that this writer
// knows.
func (w *writer) commitAs(ctx context.Context, c change, p position) error {
	snapshot, began := w.snapshot, cmp.Or(w.oldest, w.now())
	p.Writer, p.Commit, p.Snapshot = w.name, rand.Text(), &snapshot
	for pause := time.Second / 10; ; pause = min(2*pause, maxRetryPause) {
		p.Sequence = w.lake.head()
		text := p.String()
		c.summary = withKey(c.summary, keyPosition, text)
		c.properties = withKey(c.properties, keyPosition, text)
		err := w.lake.commit(ctx, c)
		if err == nil {
			w.at = p
			return nil
		}
		w.Log.Warn("a commit failed; looking whether the table has it", "err", err, "conflict", isConflict(err))
		if err := w.reload(ctx, pause, began); err != nil {
			return errors.Join(err, ctx.Err())
		}
		now, err := w.current()
		switch {
		case err != nil:
			return err
		case now.Writer == p.Writer && now.Commit == p.Commit:
			w.at = p
			return nil
		case now.Writer != w.at.Writer || now.Commit != w.at.Commit:
			return ErrOtherWriter
		}
	}
}

// reload waits until the catalog can be reached, for files that were begun at a time.
func (w *writer) reload(ctx context.Context, pause time.Duration, began time.Time) error {
	for {
		if w.now().Sub(began) > maxPending {
			return fmt.Errorf("rows wait for their commit since %s: their files may be removed as orphans; "+
				"start again", maxPending)
		}
		if err := ratelimit.Sleep(ctx, pause); err != nil {
			return err
		}
		err := w.lake.reload(ctx)
		if err == nil {
			return nil
		}
		w.Log.Warn("the catalog can't be reached now; trying again", "err", err, "pause", pause.String())
		pause = min(2*pause, maxRetryPause)
	}
}

// current is the position that the table has.
func (w *writer) current() (*position, error) {
	text, found := w.lake.find(keyPosition)
	if !found {
		return &position{}, nil
	}
	return parsePosition(text)
}

// snapshotRows is the newest midnight whose snapshot rows are in the table; zero for none.
func (l *lake) snapshotRows() (midnight time.Time, err error) {
	if text, found := l.find(keyPosition); found {
		if p, err := parsePosition(text); err != nil {
			return midnight, err
		} else if p.Snapshot != nil {
			return *p.Snapshot, nil
		}
	}
	if text, found := l.find(keySnapshot); found {
		midnight, err = time.Parse(time.RFC3339, text)
	}
	return midnight, err
}

// isBehind reports whether a position is of a commit that is not among what the table has: it was
// rolled back. Of commits whose snapshots have expired each is before the oldest that is left.
func (l *lake) isBehind(p *position) bool {
	oldest := int64(0)
	for s := l.CurrentSnapshot(); s != nil; s = l.SnapshotByID(*s.ParentSnapshotID) {
		if oldest = s.SequenceNumber; s.Summary != nil && s.Summary.Properties[keyPosition] != "" {
			return false
		}
		if s.ParentSnapshotID == nil {
			break
		}
	}
	return p.Sequence+1 >= oldest
}

func withKey(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}
