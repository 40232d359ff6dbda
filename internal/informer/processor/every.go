package processor

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// runEvery sends every change. It calls ended when it has ended.
func (l *Listener) runEvery(ctx context.Context, ended func(error)) {
	forget := context.AfterFunc(ctx, l.cursor.Unpark) // so that the step sees that ctx has ended
	step := func() bool { return ctx.Err() == nil && l.step() }
	var resume func()
	resume = func() {
		if parked, err := l.passRead(ctx, step, resume); !parked {
			forget()
			ended(err)
		}
	}
	if err := l.passAll(ctx, l.unsent(l.unacked)); err != nil {
		forget()
		ended(err)
		return
	}
	l.unacked = nil
	resume()
}

// passRead passes on the entries of the log. It reports true when it has parked at the end: then
// this goroutine may not touch the listener any more.
func (l *Listener) passRead(
	ctx context.Context, step func() bool, resume func(),
) (parked bool, err error) {
	for ctx.Err() == nil {
		settled := l.wakeUps.Load()
		if err := l.passPostponed(ctx); err != nil {
			return false, err
		}
		entries, err := l.read()
		ended := errors.Is(err, changelog.ErrEnd)
		switch waits := l.barriers.hasPostponed.Load(); {
		case ended && !waits:
			return false, l.waitEmpty(ctx)
		case err != nil && !ended:
		case len(entries) > 0:
			err = l.passAll(ctx, l.unsent(entries))
		case waits:
			err = l.cursor.Wait(ctx, !ended, func() bool { return l.wakeUps.Load() != settled })
		case l.cursor.Park(step, resume):
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, context.Cause(ctx)
}

// read returns the entries that the step has left, or else the next ones of the log.
func (l *Listener) read() (entries []*changelog.Entry, err error) {
	if entries, l.leftByStep = l.leftByStep, nil; len(entries) > 0 {
		return entries, nil
	}
	return l.cursor.Read(readSize)
}

// stepSize and stepBytes bound what a step passes on: more pays for a goroutine of its own. The
// goroutine that runs the step serves all other listeners too, and reads on only after it: the
// payload of a large object for one sink must not delay the small ones of another.
const (
	stepSize  = 32
	stepBytes = resource.LargeBytes
)

// step passes on entries that are appended while the listener is parked, on the goroutine that
// appends them. It reports false where the listener's own goroutine has to continue: there are more
// entries, they are large, or something has to be waited for.
func (l *Listener) step() bool {
	entries, none := l.cursor.TryRead(stepSize)
	if len(entries) == 0 {
		return none
	}
	n := len(entries)
	if entries = l.unsent(entries); len(entries) == 0 {
		return n < stepSize
	}
	if sizeOf(entries) > stepBytes || !l.tryPass(entries) {
		l.leftByStep = entries
		return false
	}
	return n < stepSize
}

func sizeOf(entries []*changelog.Entry) (bytes int) {
	for _, e := range entries {
		bytes += e.Size()
	}
	return bytes
}

// tryPass is pass for entries that are not about all objects, where nothing has to be waited for.
func (l *Listener) tryPass(entries []*changelog.Entry) bool {
	if slices.ContainsFunc(entries, isAboutAll) {
		return false
	}
	inflights := l.tryAcquire(entries)
	if inflights == nil {
		return false
	}
	items := l.itemsOf(inflights, nil)
	if l.cfg.Publisher.TryAdd(items) {
		return true
	}
	l.release(items)
	return false
}

func isAboutAll(e *changelog.Entry) bool { return e.Kind.AboutAll(e.Key) }

// passAll passes entries on; an entry about all objects goes alone.
func (l *Listener) passAll(ctx context.Context, entries []*changelog.Entry) error {
	for len(entries) > 0 {
		n := upToBarrier(entries)
		if err := l.pass(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// upToBarrier returns how many entries may be in flight together: those before the first one about
// all objects, or that one alone.
func upToBarrier(entries []*changelog.Entry) int {
	n := slices.IndexFunc(entries, isAboutAll)
	if n < 0 {
		return len(entries)
	}
	return max(n, 1)
}

// pass adds the events of entries to the publisher. An entry about all objects comes alone.
func (l *Listener) pass(ctx context.Context, entries []*changelog.Entry) error {
	if isAboutAll(entries[0]) {
		return l.passBarrier(ctx, entries[0])
	}
	return l.addEvents(ctx, entries, nil)
}

// Broadcaster is a Publisher whose sink has parts, each of which gets a copy of an event about all
// objects.
type Broadcaster interface {
	// Parts returns how many parts an event has to reach; 0 to send it as it is.
	Parts(ctx context.Context, e *event.Event) (int, error)
	// KeepHolds takes over the holds of copies that are settled while others are not, by MessageID.
	KeepHolds(holds map[string]*publisher.PositionHold)
}

// StallReporter is a Publisher that reports how many items of a settler wait for a destination that
// refuses everything: *publisher.Publisher.
type StallReporter interface {
	Stalled(s publisher.Settler) int
}

// passBarrier waits until everything before an entry about all objects is settled, sends the entry,
// and waits until it is settled too. One object whose topic is missing would keep back all others,
// so stalled events are not waited for:
//
//   - A gap is sent. It reports what is missing, and comes before the events that heal it.
//   - The end of a list, or progress, reports that everything is there. It is postponed until that
//     is true: until nothing is stalled, and the list behind each gap that was sent has ended too.
//   - A gap that begins another epoch waits, since events of two epochs do not mix.
//
// An event of a stalled object may so come behind a gap, and then before what the list says of the
// object: the order of each object holds.
func (l *Listener) passBarrier(ctx context.Context, e *changelog.Entry) error {
	stalled, err := l.waitBarrier(ctx, e)
	if err != nil {
		return err
	}
	b := &l.barriers
	switch {
	case reportsAll(e) && (stalled || e.Position < b.lastAhead):
		l.postpone(e)
		return nil
	case reportsAll(e), !stalled && b.areClosed():
		if err := l.sendPostponed(ctx); err != nil {
			return err
		}
	case len(b.postponed) > 0 && beginsList(e):
		if err := l.putAhead(ctx, e); err != nil {
			return err
		}
	}
	return l.sendBarrier(ctx, e)
}

// waitBarrier waits until everything before an entry about all objects is settled, or all that is
// left is stalled, and the entry may pass it.
func (l *Listener) waitBarrier(ctx context.Context, e *changelog.Entry) (stalled bool, err error) {
	for {
		stalled, err := l.waitStalled(ctx)
		if err != nil || !stalled || l.mayPass(e) {
			return stalled, err
		}
		if err := ratelimit.Sleep(ctx, stallCheck); err != nil {
			return false, err
		}
	}
}

// reportsAll reports whether an entry says that everything before it is there.
func reportsAll(e *changelog.Entry) bool {
	return e.Kind == changelog.OfListEnd || e.Kind == changelog.OfProgress
}

// beginsList reports whether an entry is a gap that the end of a list follows.
func beginsList(e *changelog.Entry) bool {
	return e.Kind == changelog.OfGap && e.Relist.Reason != resource.ReasonLost
}

// mayPass reports whether an entry about all objects need not wait for what is stalled. One that
// passes postponed ones has to be found with them after a crash.
func (l *Listener) mayPass(e *changelog.Entry) bool {
	switch {
	case e.Kind == changelog.OfGap && (e.AskBroker || e.Relist.Reason == resource.ReasonRewound):
		return false // another epoch begins
	case reportsAll(e):
		return true // it is postponed
	}
	return len(l.barriers.postponed) == 0 || !beginsList(e) || l.cursor.IsKept(e.Position)
}

// areClosed reports whether no gap was sent behind what is postponed.
func (b *barriers) areClosed() bool {
	n := len(b.postponed)
	return n == 0 || b.postponed[n-1].Position > b.lastAhead
}

// postpone puts an entry behind the postponed ones. Progress takes the place of the one before it,
// which says less.
func (l *Listener) postpone(e *changelog.Entry) {
	b := &l.barriers
	if n := len(b.postponed); n > 0 && b.areClosed() && isMereProgress(b.postponed[n-1]) {
		l.cursor.Ack([]changelog.Ack{{At: b.postponed[n-1].Position}})
		b.postponed = b.postponed[:n-1]
	}
	b.postponed = append(b.postponed, e)
	b.hasPostponed.Store(true)
}

// isMereProgress reports whether an entry is progress without an unwatched time.
func isMereProgress(e *changelog.Entry) bool {
	return e.Kind == changelog.OfProgress && e.Before == ""
}

// putAhead has a gap pass the postponed entries. It stays pending as long as they do: after a crash
// they must not be sent before the list has ended that follows the gap.
func (l *Listener) putAhead(ctx context.Context, e *changelog.Entry) error {
	l.barriers.lastAhead = e.Position
	l.mu.Lock()
	l.barriers.ahead = e
	l.mu.Unlock()
	return store.RetryUntilWritten(ctx, l.env.Indexer, l.env.Logger, func() error {
		return l.cursor.KeepTried(e.Position)
	})
}

// findAhead finds a gap of an earlier run that has passed what is postponed.
func (l *Listener) findAhead(h *changelog.Header) {
	if h.Kind == changelog.OfGap && l.cursor.IsTried(h.Position) {
		l.barriers.lastAhead = h.Position
	}
}

// postponedDue reports whether the postponed entries can be sent when nothing is in flight.
func (l *Listener) postponedDue() bool {
	b := &l.barriers
	return len(b.postponed) > 0 && b.areClosed() && l.stalled() == 0
}

// passPostponed sends the postponed entries as soon as what they report is true.
func (l *Listener) passPostponed(ctx context.Context) error {
	if !l.postponedDue() {
		return nil
	}
	if stalled, err := l.waitStalled(ctx); err != nil || stalled {
		return err
	}
	return l.sendPostponed(ctx)
}

// sendPostponed sends the postponed entries, in order. Nothing is in flight.
func (l *Listener) sendPostponed(ctx context.Context) error {
	b := &l.barriers
	for ; len(b.postponed) > 0; b.postponed = b.postponed[1:] {
		if err := l.sendBarrier(ctx, b.postponed[0]); err != nil {
			return err
		}
	}
	b.hasPostponed.Store(false)
	l.mu.Lock()
	settled := b.settled
	b.settled, b.ahead = nil, nil
	l.mu.Unlock()
	if len(settled) > 0 {
		l.cursor.Ack(settled)
	}
	return nil
}

// sendBarrier sends an entry about all objects, and waits until it is settled.
func (l *Listener) sendBarrier(ctx context.Context, e *changelog.Entry) error {
	isSent, err := l.resolve(ctx, e)
	if err != nil || !isSent {
		return err
	}
	l.countGap(e)
	entries, of, err := l.broadcast(ctx, e)
	if err != nil {
		return err
	}
	if err := l.addEvents(ctx, entries, of); err != nil {
		return err
	}
	return l.waitSettled(ctx, e)
}

// countGap counts a gap that only the listener knows of.
func (l *Listener) countGap(e *changelog.Entry) {
	switch {
	case e.Kind == changelog.OfDropped:
		l.env.Gaps.With(resource.ReasonDropped).Inc()
	case e.AskBroker:
		l.env.Gaps.With(e.Relist.Reason).Inc()
	}
}

// broadcast repeats an entry about all objects for each part of the sink's destination. The entry
// is pending until all copies are settled. After a crash all are sent again, and the sink
// recognizes the ones that it has. of is nil where the sink has no parts.
func (l *Listener) broadcast(
	ctx context.Context, e *changelog.Entry,
) (entries []*changelog.Entry, of *eventCopies, err error) {
	entries = []*changelog.Entry{e}
	b, ok := l.cfg.Publisher.(Broadcaster)
	if !ok {
		return entries, nil, nil
	}
	ev := l.event(e)
	parts, err := b.Parts(ctx, &ev)
	if err != nil || parts == 0 {
		return entries, nil, err
	}
	parts = min(parts, l.cfg.Window) // all are in flight together
	return slices.Repeat(entries, parts), &eventCopies{left: parts, holds: holds{}}, nil
}

// releaseAhead releases the holds of gaps that were sent and stay pending: they are sent again.
func (l *Listener) releaseAhead() {
	l.mu.Lock()
	settled := l.barriers.settled
	l.barriers.settled = nil
	l.mu.Unlock()
	for _, ack := range settled {
		if ack.Hold != nil {
			ack.Hold.Release()
		}
	}
}

// handOver gives the publisher, after Detach, the holds of copies that are settled while others are
// not. All copies will be added again. After a crash before that, the sink must find the copies
// that it has, so the saved position may not pass them yet.
func (l *Listener) handOver() {
	b, ok := l.cfg.Publisher.(Broadcaster)
	if !ok {
		return
	}
	handed := holds{}
	l.mu.Lock()
	for _, p := range l.inflights {
		if of := p.copies; of != nil {
			maps.Copy(handed, of.holds)
			clear(of.holds)
		}
	}
	l.mu.Unlock()
	b.KeepHolds(handed)
}
