package reflector

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/resource"
)

// slack is for a server that is late to end a watch.
const slack = 30 * time.Second

// watch follows the changes from now on.
func (r *Reflector) watch(ctx context.Context) stepResult {
	q := r.query()
	q.Set("resourceVersion", string(r.state.at.complete))
	return r.readWatch(ctx, q, false)
}

// readWatch opens a watch, and hands on its events. A WatchList (initial) begins with the state.
// The result has no error when the server ended the watch in order.
func (r *Reflector) readWatch(ctx context.Context, q url.Values, initial bool) stepResult {
	timeout := r.cfg.WatchTimeout + time.Duration(rand.Float64()*float64(r.cfg.WatchTimeout))
	setWatch(q, timeout)
	p := answerTimeouts{silence: r.cfg.Watchdog, total: timeout + slack}
	if initial {
		p.silence = r.cfg.WatchListTimeout
	} else {
		r.status.phase(Watching)
	}
	from := r.state.at.version
	s, err := r.get(ctx, q, p)
	if err != nil {
		return stepResult{err: err}
	}
	defer s.close()
	s.listed = from
	r.metrics.watches.Inc()
	err = r.receive(ctx, s, initial)
	r.interrupt(err)
	at := r.state.at.version
	return r.ended(err, initial, watchStats{s.started, timeout, at != from, at != s.listed})
}

// interrupt notes since when the watch is interrupted: since its end, or since it was last heard of
// where a connection broke, which may have been dead before.
func (r *Reflector) interrupt(err error) {
	if !r.interrupted.IsZero() {
		return
	}
	if r.interrupted = time.Now(); !errors.Is(err, io.EOF) && !errors.Is(err, errSelectionChanged) {
		s := r.status.get()
		for _, at := range []time.Time{s.LastSeen, s.Opened} {
			if !at.IsZero() {
				r.interrupted = at
				break
			}
		}
	}
}

func setWatch(q url.Values, timeout time.Duration) {
	q.Set("watch", "true")
	q.Set("allowWatchBookmarks", "true")
	q.Set("timeoutSeconds", seconds(timeout))
}

type watchStats struct {
	started  time.Time
	asked    time.Duration // after which the server was to end it
	progress bool          // it has brought something
	changes  bool          // it has brought something behind its list
}

// endedEarly reports whether the watch ended before its time, as on a server that shuts down.
func (l watchStats) endedEarly() bool { return time.Since(l.started) < l.asked-time.Second }

// ended turns the end of a watch into a result.
func (r *Reflector) ended(err error, initial bool, was watchStats) stepResult {
	switch {
	case errors.Is(err, errSelectionChanged):
		return stepResult{}
	case errors.Is(err, errSilent) && !(initial && r.state.relist != nil) && !r.status.get().Bookmarks:
		// nothing happened, and of that this server sends no bookmarks: ask for its version
		return stepResult{watched: true, early: true, quiet: !was.changes}
	case !errors.Is(err, io.EOF):
		return stepResult{err: &brokenError{err, was.progress}}
	case initial && r.state.relist != nil:
		return stepResult{err: &brokenError{errNoInitialEnd, was.progress}}
	case !was.progress && time.Since(was.started) < shortWatch:
		return stepResult{err: &brokenError{errClosed, was.progress}}
	}
	// Before its time, a server also ends a watch that is too slow, with changes unsent.
	early := was.endedEarly()
	return stepResult{watched: true, early: early, quiet: !early || !was.changes}
}

// receive hands on frames until the stream ends, which is always an error.
func (r *Reflector) receive(ctx context.Context, s *stream, initial bool) error {
	if err := r.opened(ctx, initial); err != nil {
		return err
	}
	s.flush = r.cfg.Store.Flush
	stop := func() {}
	defer func() { stop() }()
	if !initial {
		lasting := time.AfterFunc(shortWatch, r.watchAccepted)
		defer lasting.Stop()
		stop = r.untilSelectionChanges(s)
	}
	v := newFrameReader(s, r.cfg.MaxFrame)
	for {
		f, raw, err := r.next(v)
		r.metrics.frameBytes.Add(float64(v.size()))
		if err != nil {
			if err = r.recoverFrame(ctx, &f, initial, v.readError(err), raw,
				v.Offset()); err != nil {
				return err
			}
			s.alive()
			continue
		}
		if !initial {
			s.alive()
			if err := r.handOn(ctx, &f); err != nil {
				return err
			}
			continue
		}
		if f.event == watch.Added {
			s.alive()
		}
		done, err := r.takeInitial(ctx, &f)
		if err != nil {
			return err
		}
		if done {
			initial, s.listed = false, r.state.at.version
			stop = r.untilSelectionChanges(s)
			s.expect(r.cfg.Watchdog)
			r.status.phase(Watching)
		}
	}
}

// next reads one frame, and chooses the action for its object.
func (r *Reflector) next(v *frameReader) (f frame, raw []byte, err error) {
	f, raw, err = v.next(&r.cfg.Parse)
	if err != nil || f.obj == nil {
		return f, raw, err
	}
	c, refused := r.chooseAction(f.obj)
	if refused != nil {
		return f, v.at(*f.object), &unreadableError{err: refused}
	}
	f.action = c
	return f, raw, nil
}

// recoverFrame reports a frame that could not be read. It returns nil where the next frame can be
// read and nothing else has to be done.
func (r *Reflector) recoverFrame(
	ctx context.Context, f *frame, initial bool, err error, raw []byte, at int64,
) error {
	refused, ok := errors.AsType[*resource.RefusedError](err)
	ok = ok && (f.event == watch.Added || f.event == watch.Modified || f.event == watch.Deleted &&
		r.isolated(refused))
	switch {
	case ok && f.event == watch.Deleted:
		return r.goneUnread(ctx, f, initial, refused)
	case ok && initial:
		return r.skipItem(ctx, refused, raw)
	case ok && !r.concerns(refused):
		r.metrics.passed.Inc()
		return nil
	// a list would skip it again
	case ok && (r.isolated(refused) || r.quarantine.skipped[refused.Key] && refused.Version != ""):
		return r.quarantineOnly(ctx, &unreadableError{err: refused, version: refused.Version}, raw)
	}
	return r.understand(ctx, err, raw, at)
}

// goneUnread hands on the deletion of an object whose last state can't be understood: nothing of
// that state is needed.
func (r *Reflector) goneUnread(
	ctx context.Context, f *frame, initial bool, refused *resource.RefusedError,
) error {
	f.obj = objectOf(refused)
	wanted := r.concerns(refused) && r.scoped(f.obj)
	switch {
	case !wanted && !initial:
		return r.recordProgress(ctx, f, true)
	case !wanted:
		return nil
	case initial:
		r.state.setReached(f.obj)
		return fromStore(r.cfg.Store.Unselected(ctx, f.obj, true))
	case r.state.at.has(f.obj, true):
		return nil
	}
	return r.advance(f, r.metrics.deleted, r.cfg.Store.Unselected(ctx, f.obj, true))
}

func (r *Reflector) opened(ctx context.Context, initial bool) error {
	if initial {
		return r.beginReplace(ctx)
	}
	since := r.interrupted
	r.interrupted = time.Time{}
	r.status.set(func(s *Status) {
		if s.Opened, s.LastError, s.NotFound = time.Now(), "", false; s.FirstOpened.IsZero() {
			s.FirstOpened = s.Opened
		}
		if !since.IsZero() && s.Opened.Sub(since) > leastInterruption {
			s.Reopened = s.Opened
		}
	})
	return nil
}

// watchAccepted records that a resumed watch was not refused: one from an expired version may be
// accepted, and end with a 410 a moment later.
func (r *Reflector) watchAccepted() {
	r.status.set(func(s *Status) { s.Synced = s.Synced || s.Phase == Watching })
}

// handOn hands on one frame. Only after that the watch continues from its version.
func (r *Reflector) handOn(ctx context.Context, f *frame) error {
	if f.obj != nil && r.state.at.has(f.obj, f.event == watch.Deleted) {
		r.seen(func(*Status) {})
		return nil
	}
	switch f.action {
	case selected:
	case unselected:
		return r.advance(f, r.metrics.passed, r.cfg.Store.Unselected(ctx, f.obj,
			f.event == watch.Deleted))
	case unwanted:
		return r.recordProgress(ctx, f, f.event == watch.Deleted)
	}
	switch f.event {
	case watch.Added:
		return r.advance(f, r.metrics.added, r.cfg.Store.Add(ctx, f.obj))
	case watch.Modified:
		return r.advance(f, r.metrics.modified, r.cfg.Store.Update(ctx, f.obj))
	case watch.Deleted:
		return r.advance(f, r.metrics.deleted, r.cfg.Store.Delete(ctx, f.obj))
	case watch.Bookmark:
		return r.bookmark(ctx, f.version)
	default:
		return f.status // the stream is over, even if more follows
	}
}

// advance counts a change that the Store took, and moves the position.
func (r *Reflector) advance(f *frame, count *metric.Counter, err error) error {
	if err != nil {
		return fromStore(err)
	}
	count.Inc()
	r.state.at.took(f.obj, f.event == watch.Deleted)
	r.publishPosition()
	return nil
}

func (r *Reflector) bookmark(ctx context.Context, v resource.Version) error {
	if err := r.cfg.Store.Bookmark(ctx, v); err != nil {
		return fromStore(err)
	}
	r.metrics.bookmarks.Inc()
	r.status.set(func(s *Status) { s.Bookmarks = s.Bookmarks || s.Phase == Watching })
	r.state.at = at(v)
	r.publishPosition()
	return nil
}

// pauseGate is where Run waits while the reflector is paused.
type pauseGate struct {
	mu      sync.Mutex
	closed  bool
	changed chan struct{}      // closed and replaced when closed changes
	cut     context.CancelFunc // ends the running step; nil while there is none
}

func newPauseGate() *pauseGate { return &pauseGate{changed: make(chan struct{})} }

// Pause stops reading: the running request is cancelled, and none is sent until Resume. Versions
// that the API server has forgotten by then are a gap like any other. It may be called before Run,
// and more than once.
func (r *Reflector) Pause() { r.gate.set(true) }

// Resume ends a Pause: the reflector asks for the API server's version, and continues from its own.
func (r *Reflector) Resume() { r.gate.set(false) }

// Paused reports whether a Pause is in force.
func (r *Reflector) Paused() bool {
	closed, _ := r.gate.state()
	return closed
}

func (g *pauseGate) set(closed bool) {
	g.mu.Lock()
	cut, changed := g.cut, g.changed
	same := g.closed == closed
	if !same {
		g.closed, g.changed = closed, make(chan struct{})
	}
	g.mu.Unlock()
	if same {
		return
	}
	close(changed)
	if closed && cut != nil {
		cut()
	}
}

func (g *pauseGate) state() (closed bool, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed, g.changed
}

// enter returns a context for one step, which Pause ends, and a function that ends the step in any
// case. While the gate is closed it calls waiting, and waits; ok is false when ctx has ended.
func (g *pauseGate) enter(
	ctx context.Context, waiting func(),
) (step context.Context, end func(), ok bool) {
	for ctx.Err() == nil {
		if step, end, ok = g.open(ctx); ok {
			return step, end, true
		}
		closed, changed := g.state()
		if !closed {
			continue
		}
		waiting()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil, nil, false
}

// open begins a step, unless the gate is closed.
func (g *pauseGate) open(ctx context.Context) (step context.Context, end func(), ok bool) {
	step, cancel := context.WithCancel(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		cancel()
		return nil, nil, false
	}
	g.cut = cancel
	return step, func() {
		g.mu.Lock()
		g.cut = nil
		g.mu.Unlock()
		cancel()
	}, true
}

// cutStep ends the running step, if there is one.
func (g *pauseGate) cutStep() {
	g.mu.Lock()
	cut := g.cut
	g.mu.Unlock()
	if cut != nil {
		cut()
	}
}
