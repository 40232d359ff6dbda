package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// ArchiveOptions of Archive.
type ArchiveOptions struct {
	SourceOptions
	// Dir is the directory of the archive.
	Dir string
	// Once ends at the end that the stream has when it is reached. Else the stream is followed.
	Once bool
	// Progress is called after each batch, with the number of messages; may be nil.
	Progress func(messages int, p source.Progress)
	// CaughtUp is called when the end of the stream is reached for the first time; may be nil.
	CaughtUp func(ArchiveReport)
	Log      *slog.Logger
}

// ArchiveReport is what one run of Archive has done.
type ArchiveReport struct {
	Source string `json:"source"`
	Dir    string `json:"dir"`
	// Messages that were read. Versions and Notices were stored, Repeats were there, Other are no
	// events of a bridge.
	Messages int `json:"messages"`
	Versions int `json:"versions"`
	Notices  int `json:"marks"`
	Repeats  int `json:"repeats"`
	Other    int `json:"other"`
	// Removed are stretches that the stream had removed before they could be read, Damaged are
	// batches that can't be read.
	Removed   int    `json:"removed"`
	Damaged   int    `json:"damaged"`
	DiskBytes uint64 `json:"diskBytes"`
}

// BeginError is why Archive could not begin. Every other error of it is a failure while it ran.
type BeginError struct{ Err error }

func (e *BeginError) Error() string { return e.Err.Error() }

func (e *BeginError) Unwrap() error { return e.Err }

// Archive reads a stream into a history. A *BeginError says that it could not begin.
func Archive(ctx context.Context, o ArchiveOptions) (*ArchiveReport, error) {
	cfg, err := sourceOf(&o.SourceOptions)
	if err != nil {
		return nil, &BeginError{err}
	}
	db, err := history.Open(history.Options{Dir: o.Dir, LastVersionsBytes: 128 << 20, Log: o.Log})
	if err != nil {
		return nil, &BeginError{err}
	}
	a := &archiver{ArchiveOptions: o, writer: db.Writer, disk: db.Maintenance, source: cfg}
	a.report.Source, a.report.Dir = shown(cfg.From), o.Dir
	err = a.run(ctx)
	a.report.DiskBytes = db.Maintenance.DiskBytes()
	return &a.report, errors.Join(err, db.Close())
}

// archiver is one run of Archive.
type archiver struct {
	ArchiveOptions
	writer *history.Writer
	disk   history.Maintenance
	source source.Config
	report ArchiveReport
	// stored is how far the archive is. Owned by the goroutine that stores.
	stored archivePosition
	caught bool
}

// archivePosition is what an archive keeps of a stream.
type archivePosition struct {
	Lanes source.Position `json:"lanes"`
	// Newest is when the newest message of each lane was stored.
	Newest map[string]time.Time `json:"newest"`
}

// isBroker reports whether a source can be read from a position. A file may be another one the next
// time, and is read from its start.
func (a *archiver) isBroker() bool {
	scheme, _, found := strings.Cut(a.source.From, "://")
	return found && scheme != "file"
}

const (
	// followPause is how long an archive that follows waits at the end of a stream.
	followPause = time.Second
	// maxRetryPause is between two attempts to reach a broker that was there.
	maxRetryPause = 30 * time.Second
)

// run reads until the end, or follows. A broker that can't be reached after it was is waited for.
func (a *archiver) run(ctx context.Context) error {
	if err := a.load(); err != nil {
		return &BeginError{err}
	}
	for pause := followPause; ; {
		before := a.report.Messages
		err := a.read(ctx)
		switch {
		case ctx.Err() != nil, err == nil:
			return nil // what was read is stored
		case errors.Is(err, source.ErrOther):
			a.Log.Warn("the stream was recreated: it is read from its start", "source", a.report.Source)
			if err := a.noteRecreated(ctx); err != nil {
				return storeError{err}
			}
			continue
		case isStoreError(err):
			return err
		case !a.caught && a.report.Messages == 0:
			return &BeginError{err}
		case a.Once:
			return err
		case a.report.Messages > before:
			pause = followPause
		}
		a.Log.Warn("the stream can't be read now; trying again", "source", a.report.Source, "err", err,
			"pause", pause.String())
		if ratelimit.Sleep(ctx, pause) != nil {
			return nil
		}
		pause = min(2*pause, maxRetryPause)
	}
}

// storeError is of the archive, rather than of the stream.
type storeError struct{ error }

func (e storeError) Unwrap() error { return e.error }

func isStoreError(err error) bool {
	_, ok := errors.AsType[storeError](err)
	return ok
}

func (a *archiver) load() error {
	if !a.isBroker() {
		return nil
	}
	text, err := a.writer.Position(a.report.Source)
	if err != nil || text == nil {
		return err
	}
	if err := json.Unmarshal(text, &a.stored); err != nil {
		return fmt.Errorf("archive %s: the position in %s can't be read: %w", a.Dir,
			a.report.Source, err)
	}
	return nil
}

// noteRecreated stores that what the stream before had behind the position is not known, with the
// position of the start of this one.
func (a *archiver) noteRecreated(ctx context.Context) error {
	since, now := time.Time{}, time.Now()
	for _, at := range a.stored.Newest {
		if at.After(since) {
			since = at
		}
	}
	a.stored = archivePosition{}
	b := &archiveBatch{at: a.stored}
	if since.Before(now) && !since.IsZero() {
		id := "recreated/" + since.UTC().Format(time.RFC3339Nano)
		what := query.Removal{Reason: query.ReasonRecreated, Since: since, Until: now}
		b.events = []*event.Event{archiveNotice(a.report.Source, id, what)}
	}
	return a.store(ctx, b)
}

// archiveBatch is what is stored at once.
type archiveBatch struct {
	events   []*event.Event
	messages int
	other    int
	removed  int
	damaged  int
	bytes    int
	at       archivePosition
	progress source.Progress
}

// Bounds of a batch.
const (
	maxBatchEvents = 1000
	maxBatchBytes  = 8 << 20
)

// read reads from the position to the end that the stream has, and follows it unless it is read
// once.
func (a *archiver) read(ctx context.Context) error {
	cfg := a.source
	if a.isBroker() {
		cfg.After = a.stored.Lanes
	}
	reader, err := source.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		if err := a.readToEnd(ctx, reader); err != nil || a.Once || !a.isBroker() {
			return err
		}
		if !a.caught && a.CaughtUp != nil {
			a.report.DiskBytes = a.disk.DiskBytes()
			a.CaughtUp(a.report)
		}
		a.caught = true
		if err := ratelimit.Sleep(ctx, followPause); err != nil {
			return err
		}
	}
}

// readToEnd reads to the end that the stream has now.
func (a *archiver) readToEnd(ctx context.Context, reader source.Reader) error {
	batches := make(chan *archiveBatch, 2)
	g, reading := errgroup.WithContext(ctx)
	removed := len(reader.Removed())
	g.Go(func() error {
		defer close(batches)
		return a.fill(reading, reader, batches, removed)
	})
	var failed error
	for b := range batches {
		if failed == nil {
			if failed = a.store(ctx, b); failed != nil {
				failed = storeError{failed}
				g.Go(func() error { return failed }) // ends the reading
			}
		}
	}
	return errors.Join(failed, g.Wait())
}

// fill makes batches of what is read.
func (a *archiver) fill(
	ctx context.Context, reader source.Reader, batches chan<- *archiveBatch, removed int,
) error {
	newest := maps.Clone(a.stored.Newest)
	if newest == nil {
		newest = map[string]time.Time{}
	}
	b := &archiveBatch{}
	// damaged are batches of which the next message was not read yet.
	var damaged []source.Removal
	// noteMissing adds what is missing before m, or before the end. No position behind it is stored
	// without it.
	noteMissing := func(m *source.Message) {
		note := func(r source.Removal, reason string) {
			until := time.Now()
			if r.Lane == m.Lane && !m.Stored.IsZero() {
				until = m.Stored
			}
			b.events = append(b.events, missingNotice(a.report.Source, r, reason, newest[r.Lane], until))
		}
		for list := reader.Removed(); removed < len(list); removed++ {
			note(list[removed], query.ReasonRemoved)
			b.removed++
		}
		for _, r := range damaged {
			if r.To = reader.Position()[r.Lane].Next; r.Lane == m.Lane {
				r.To = m.Offset
			}
			note(r, query.ReasonDamaged)
			b.damaged++
		}
		damaged = nil
	}
	send := func() error {
		noteMissing(&source.Message{})
		b.at = archivePosition{maps.Clone(reader.Position()), maps.Clone(newest)}
		b.progress = reader.Progress()
		select {
		case batches <- b:
			b = &archiveBatch{}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for m, err := range reader.Messages(ctx) {
		if err != nil {
			return errors.Join(err, send())
		}
		if !m.Damaged {
			noteMissing(m)
		}
		b.messages++
		if !m.Stored.IsZero() {
			newest[m.Lane] = m.Stored
		}
		switch {
		case m.Damaged:
			damaged = append(damaged, source.Removal{Lane: m.Lane, From: m.Offset})
		case m.Other != "" || m.Event.Op == "":
			b.other++
		default:
			e := m.Event
			e.Data = slices.Clone(e.Data)
			e.Observed = m.Stored // where the event has no time
			b.events, b.bytes = append(b.events, &e), b.bytes+len(e.Data)
		}
		if len(b.events)+len(damaged)+b.other >= maxBatchEvents || b.bytes >= maxBatchBytes {
			if err := send(); err != nil {
				return err
			}
		}
	}
	if b.messages == 0 && removed == len(reader.Removed()) {
		return nil
	}
	return send()
}

// missingNotice says that messages of a stream could not be read, and why. They were stored between
// two times.
func missingNotice(
	from string, r source.Removal, reason string, since, until time.Time,
) *event.Event {
	return archiveNotice(from, fmt.Sprintf("%s/%d/%d", r.Lane, r.From, r.To), query.Removal{
		Reason: reason, Lane: r.Lane, From: strconv.FormatUint(r.From, 10),
		To: strconv.FormatUint(r.To-1, 10), Since: since, Until: until, Singly: r.Singly,
	})
}

func archiveNotice(from, id string, what query.Removal) *event.Event {
	data, err := json.Marshal(what)
	if err != nil {
		panic(err) // it has texts and times
	}
	return &event.Event{
		ID: id, Source: record.ArchiveSource, Type: query.TypeRemoved, Op: event.Gap, Informer: from,
		Time: what.Since, Data: data,
	}
}

// store stores a batch with its position, also when a signal ends ctx.
func (a *archiver) store(ctx context.Context, b *archiveBatch) error {
	var positions []history.SourcePosition
	if a.isBroker() {
		text, err := json.Marshal(b.at)
		if err != nil {
			return err
		}
		positions = append(positions, history.SourcePosition{Name: a.report.Source, Position: text})
	}
	stored, err := a.writer.Append(context.WithoutCancel(ctx), b.events, positions...)
	if err != nil {
		return err
	}
	a.report.Versions += stored.Versions
	a.report.Notices += stored.Notices
	a.report.Repeats += stored.Repeats
	a.stored = b.at
	a.report.Messages += b.messages
	a.report.Other += b.other
	a.report.Removed += b.removed
	a.report.Damaged += b.damaged
	if a.Progress != nil {
		a.Progress(a.report.Messages, b.progress)
	}
	return nil
}
