package informer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/condition"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
)

// readSize is how many changes a listener takes from the log at once.
const readSize = 256

// listener is one cursor in the change log: it makes events of the changes that are for it and adds them to its publisher.
type listener struct {
	cfg      ListenerConfig
	informer *Informer
	bit      uint64       // of it in an audience
	left     []*change    // by a run before; owned by run
	saved    []byte       // the cursor on disk, nil when not known; owned by whoever commits
	dropped  atomic.Int64 // events, of this run
	// selection and progress are the controller's. progress was reported last.
	selection selection
	progress  struct {
		version resource.Version
		at      time.Time
	}
	// Of a listener with Latest only.
	leftover []sighting    // by a run before, that is not noted yet; owned by run
	settled  atomic.Uint64 // counts calls of Settle, and what else may let more be sent
	awaiting atomic.Bool   // a goroutine waits until the publisher's demand changes

	mu   sync.Mutex
	cond *sync.Cond // signalled when parcels come back
	// parcels are made as they are needed, up to the window; free are those that are not with the publisher. An Item's
	// Seq is its parcel's place.
	parcels []*parcel
	free    []*parcel
	// read are changes that were read and have no parcels yet.
	read []*change
	// levels is what was read ahead, and sending what of it is about to get parcels; nil without Latest.
	levels  *levels
	sending []step
	// cursor is where it stands; pending is not kept here but found in read, levels, sending and the parcels, but for what a run
	// before has left.
	cursor cursor
}

// parcel is one event on its way, and the change it tells.
type parcel struct {
	item   publisher.Item
	event  event.Event
	change *change
	first  *change // whose place the change takes, and that is settled with it; nil for none
	level  *level  // of the object, with Latest
	// observed is the change's: what all have settled loses its own.
	observed time.Time
}

func newListener(cfg ListenerConfig, i *Informer, bit uint64) *listener {
	cfg.Window = cmp.Or(cfg.Window, 4096)
	cfg.Run = cmp.Or(cfg.Run, rand.Text()[:8])
	l := &listener{cfg: cfg, informer: i, bit: bit, selection: selection{selector: cfg.Selector, sink: cfg.Name}}
	l.cond = sync.NewCond(&l.mu)
	if cfg.Latest {
		l.levels = newLevels(cmp.Or(cfg.Ahead, 16<<10), cfg.Maker.NeedsOld())
	}
	return l
}

// run passes changes on until the log ends and everything is settled.
func (l *listener) run(ctx context.Context) error {
	if l.cfg.Latest {
		return l.runLatest(ctx)
	}
	buf := make([]*change, 0, readSize)
	items := make([]*publisher.Item, 0, readSize)
	if err := l.catchUp(ctx, items); err != nil {
		return err
	}
	for {
		changes, err := l.informer.log.read(ctx, l.next(), l.bit, buf, l)
		if errors.Is(err, errLogEnd) {
			return l.waitEmpty(ctx)
		}
		if err != nil {
			return err
		}
		if err := l.passAll(ctx, changes, items); err != nil {
			return err
		}
	}
}

// prepare reads what a run before had passed on and not seen settled, before anything can be dropped.
func (l *listener) prepare() (err error) {
	if l.cfg.Latest {
		return l.prepareLatest()
	}
	l.left, err = l.informer.disk.at(l.stand().pending, l.bit)
	return err
}

// catchUp passes on what prepare has read.
func (l *listener) catchUp(ctx context.Context, items []*publisher.Item) error {
	if err := l.passAll(ctx, l.left, items); err != nil {
		return err
	}
	l.left = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cursor.pending = nil // they have parcels, or are settled
	return nil
}

// passAll passes changes on, those about all objects alone.
func (l *listener) passAll(ctx context.Context, changes []*change, items []*publisher.Item) error {
	for len(changes) > 0 {
		n := upToBarrier(changes)
		if err := l.pass(ctx, changes[:n], items); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return nil
}

// next is the position to read from.
func (l *listener) next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cursor.next
}

// moved says that everything before a position was read, and what of it is to be passed on now; from then on these are pending.
func (l *listener) moved(changes []*change, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read, l.cursor.next = changes, max(l.cursor.next, next)
}

// stand is where the listener stands now.
func (l *listener) stand() cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := cursor{next: l.cursor.next, pending: slices.Clone(l.cursor.pending)}
	for _, p := range l.parcels {
		if p.change != nil {
			c.pending = append(c.pending, p.change.position)
		}
		if p.first != nil {
			c.pending = append(c.pending, p.first.position)
		}
	}
	for s := range l.stepsLocked() {
		c.pending = append(c.pending, s.first, s.last)
	}
	for _, ch := range l.read {
		c.pending = append(c.pending, ch.position)
	}
	slices.Sort(c.pending)
	c.pending = slices.Compact(c.pending)
	for _, p := range l.cursor.tried {
		if c.has(p) {
			c.tried = append(c.tried, p)
		}
	}
	return c
}

// stepsLocked are the events to come of a listener with Latest.
func (l *listener) stepsLocked() iter.Seq[*step] {
	return func(yield func(*step) bool) {
		for i := range l.sending {
			if !yield(&l.sending[i]) {
				return
			}
		}
		if l.levels != nil {
			l.levels.all()(yield)
		}
	}
}

// upToBarrier is how many changes may be on their way together: those before the first that is about all objects, or that alone.
func upToBarrier(changes []*change) int {
	for n, c := range changes {
		if c.Kind.ofAll(c.Key) {
			return max(n, 1)
		}
	}
	return len(changes)
}

// pass makes the events of changes and adds them to the publisher. One about all objects has the way to itself.
func (l *listener) pass(ctx context.Context, changes []*change, items []*publisher.Item) error {
	alone, parts := changes[0].Kind.ofAll(changes[0].Key), 0
	if alone {
		if err := l.waitEmpty(ctx); err != nil {
			return err
		}
		told, err := l.resolve(ctx, changes[0])
		if err != nil || !told {
			return err
		}
		l.informer.metrics.told(changes[0])
		if changes, parts, err = l.broadcast(ctx, changes[0]); err != nil {
			return err
		}
	}
	for len(changes) > 0 {
		parcels, err := l.take(ctx, changes)
		if err != nil {
			return err
		}
		items = items[:0]
		for i, p := range parcels {
			p.event = changes[i].event(&l.cfg)
			if parts > 0 {
				p.event = p.event.Copy(i)
			}
			p.item.Message = sinks.Message{Event: &p.event}
			p.item.Cover = l.cover(&changes[i].facts)
			items = append(items, &p.item)
		}
		changes = changes[len(parcels):]
		if err := l.cfg.Publisher.Add(ctx, items); err != nil {
			return err
		}
	}
	if alone {
		return l.waitEmpty(ctx)
	}
	return nil
}

// take waits for room in the window and takes parcels for the first of the changes, at least one.
func (l *listener) take(ctx context.Context, changes []*change) ([]*parcel, error) {
	n := len(changes)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := condition.Wait(ctx, l.cond, func() bool { return len(l.free) > 0 || len(l.parcels) < l.cfg.Window }); err != nil {
		return nil, err
	}
	for len(l.free) < n && len(l.parcels) < l.cfg.Window {
		p := &parcel{}
		p.item.Settler, p.item.Seq = l, uint64(len(l.parcels))
		l.parcels = append(l.parcels, p)
		l.free = append(l.free, p)
	}
	n = min(n, len(l.free))
	taken := append([]*parcel{}, l.free[len(l.free)-n:]...)
	l.free = l.free[:len(l.free)-n]
	for i, p := range taken {
		p.change, p.observed = changes[i], changes[i].Observed
		l.cursor.caughtUp(p.change.position)
	}
	last := changes[n-1].position // of a broadcast several parcels have one position
	for len(l.read) > 0 && l.read[0].position <= last {
		l.read = l.read[1:]
	}
	return taken, nil
}

// Settle is called by the publisher with items that are settled.
func (l *listener) Settle(items []*publisher.Item) {
	l.informer.settle(func() []*change { return l.settledByAll(items) })
	l.takeBack(items)
	if l.levels != nil {
		l.settled.Add(1)
		l.informer.log.wake()
	}
}

// takeBack makes the parcels of settled items free.
func (l *listener) takeBack(items []*publisher.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		p := l.parcels[it.Seq]
		if p.level != nil {
			l.levels.done(p.level)
		}
		p.change, p.first, p.level, p.event = nil, nil, nil, event.Event{}
		l.free = append(l.free, p)
		// After the parcel: a cursor that is saved with a position behind the mark must not have it pending.
		it.Mark.Release()
		it.Mark = nil
	}
	l.cond.Broadcast()
}

// settledByAll notes that this listener has settled the items' changes, and gives those that no listener waits for any more. What others
// wait for keeps the item's mark, unless it lies on disk, where each listener has its own cursor.
func (l *listener) settledByAll(items []*publisher.Item) []*change {
	l.mu.Lock()
	defer l.mu.Unlock()
	done := make([]*change, 0, len(items))
	for _, it := range items {
		p := l.parcels[it.Seq]
		if p.first != nil && p.first.waiting.Add(-1) == 0 {
			done = append(done, p.first)
		}
		c := p.change
		switch {
		case c.waiting.Add(-1) == 0:
			done = append(done, c)
		case it.Mark != nil && !c.spooled.Load():
			c.marks = append(c.marks, it.Mark)
			it.Mark = nil
		}
	}
	return done
}

// waitEmpty waits until everything that was passed on is settled.
func (l *listener) waitEmpty(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return condition.Wait(ctx, l.cond, func() bool { return len(l.free) == len(l.parcels) })
}

func (l *listener) inFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.parcels) - len(l.free)
}

// oldest is when the oldest change was observed that was read and is not settled; zero when there is none.
func (l *listener) oldest() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var oldest time.Time
	if len(l.read) > 0 {
		oldest = l.read[0].Observed
	}
	for _, p := range l.parcels {
		if p.change != nil && (oldest.IsZero() || p.observed.Before(oldest)) {
			oldest = p.observed
		}
	}
	for s := range l.stepsLocked() {
		if oldest.IsZero() || s.observed.Before(oldest) {
			oldest = s.observed
		}
	}
	return oldest
}
