package informer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/condition"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
)

// readSize is how many changes a listener takes from the log at once.
const readSize = 256

// listener makes events of the entries that a cursor reads, and adds them to its publisher.
type listener struct {
	cfg      ListenerConfig
	informer *Informer
	cursor   *changelog.Cursor
	bit      changelog.Listeners
	left     []*changelog.Entry // by a run before; owned by run
	// Owned by run, and by its step while run waits.
	buf     []*changelog.Entry
	items   []*publisher.Item
	refused []*changelog.Entry // read by the step, and left to run
	// selection and progress are the controller's. progress was reported last.
	selection selection
	progress  struct {
		version resource.Version
		at      time.Time
	}
	// Of a listener with Latest only.
	leftover []changelog.Header // by a run before, that is not noted yet; owned by run
	settled  atomic.Uint64      // counts calls of Settle, and what else may let more be sent
	awaiting atomic.Bool        // a goroutine waits until the publisher's demand changes

	mu   sync.Mutex
	cond *sync.Cond // signalled when parcels come back
	// parcels are made as they are needed, up to the window; free are those that are not with the
	// publisher. An Item's Seq is its parcel's place.
	parcels []*parcel
	free    []*parcel
	levels  *levels // what was read ahead; nil without Latest
}

// parcel is one event in flight, and the entry that it is made of.
type parcel struct {
	item   publisher.Item
	event  event.Event
	entry  *changelog.Entry
	first  *changelog.Entry // whose place the entry takes, and that is acked with it; nil for none
	level  *level           // of the object, with Latest
	copies *copies          // that this is one of; nil for the only one
}

// copies are several parcels of one entry, which is acked when all are settled.
type copies struct {
	left  int
	holds holds
}

// holds are several as one.
type holds []changelog.Hold

// Release releases all.
func (hs holds) Release() {
	for _, h := range hs {
		h.Release()
	}
}

func newListener(cfg ListenerConfig, i *Informer, n int) *listener {
	cfg.Window = cmp.Or(cfg.Window, 4096)
	cfg.Run = cmp.Or(cfg.Run, rand.Text()[:8])
	l := &listener{
		cfg: cfg, informer: i, cursor: i.log.Cursor(n), bit: 1 << n,
		selection: selection{selector: cfg.Selector, sink: cfg.Name},
	}
	l.cond = sync.NewCond(&l.mu)
	if cfg.Latest {
		l.levels = newLevels(cmp.Or(cfg.Ahead, 16<<10), cfg.Maker.NeedsOld())
	}
	return l
}

// run passes entries on until the log ends and everything is settled.
func (l *listener) run(ctx context.Context) error {
	if l.cfg.Latest {
		return l.runLatest(ctx)
	}
	l.buf = make([]*changelog.Entry, 0, readSize)
	l.items = make([]*publisher.Item, 0, readSize)
	if err := l.passAll(ctx, l.left); err != nil {
		return err
	}
	l.left = nil
	for {
		entries, err := l.cursor.Read(ctx, l.buf, l.step)
		if errors.Is(err, changelog.ErrEnd) {
			return l.waitEmpty(ctx)
		}
		if err != nil {
			return err
		}
		if len(l.refused) > 0 {
			entries, l.refused = l.refused, nil
		}
		if err := l.passAll(ctx, entries); err != nil {
			return err
		}
	}
}

// stepSize and stepBytes bound what a step passes on: more pay for a goroutine of their own. The
// goroutine that runs the step serves all other listeners, and reads on only after it: the payload
// of a large object for one sink must not delay the small ones of another.
const (
	stepSize  = 32
	stepBytes = 64 << 10
)

// step passes on what was appended while run waits, on the goroutine that has appended it. It
// reports false where run has to go on: there is more, it is large, or something has to be waited
// for.
func (l *listener) step() bool {
	entries, none := l.cursor.TryRead(l.buf[:0:stepSize])
	if len(entries) == 0 {
		return none
	}
	if sizeOf(entries) > stepBytes || !l.tryPass(entries) {
		l.refused = entries
		return false
	}
	return len(entries) < stepSize
}

func sizeOf(entries []*changelog.Entry) (bytes int) {
	for _, e := range entries {
		bytes += e.Size()
	}
	return bytes
}

// tryPass is pass for entries that are not about all objects, where nothing has to be waited for.
func (l *listener) tryPass(entries []*changelog.Entry) bool {
	aboutAll := func(e *changelog.Entry) bool { return e.Kind.AboutAll(e.Key) }
	if slices.ContainsFunc(entries, aboutAll) {
		return false
	}
	parcels := l.tryTake(entries)
	if parcels == nil {
		return false
	}
	items := l.itemsOf(parcels, nil)
	if l.cfg.Publisher.TryAdd(items) {
		return true
	}
	l.takeBack(items)
	return false
}

// prepare reads what a run before had passed on and not seen settled, before anything can be
// dropped.
func (l *listener) prepare() (err error) {
	if l.cfg.Latest {
		l.leftover, err = l.cursor.LeftHeaders()
	} else {
		l.left, err = l.cursor.Left()
	}
	return err
}

// passAll passes entries on, those about all objects alone.
func (l *listener) passAll(ctx context.Context, entries []*changelog.Entry) error {
	for len(entries) > 0 {
		n := upToBarrier(entries)
		if err := l.pass(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// upToBarrier is how many entries may be on their way together: those before the first that is
// about all objects, or that alone.
func upToBarrier(entries []*changelog.Entry) int {
	for n, e := range entries {
		if e.Kind.AboutAll(e.Key) {
			return max(n, 1)
		}
	}
	return len(entries)
}

// pass makes the events of entries and adds them to the publisher. One about all objects has the
// way to itself.
func (l *listener) pass(ctx context.Context, entries []*changelog.Entry) error {
	alone, parts := entries[0].Kind.AboutAll(entries[0].Key), 0
	var of *copies
	if alone {
		if err := l.waitEmpty(ctx); err != nil {
			return err
		}
		told, err := l.resolve(ctx, entries[0])
		if err != nil || !told {
			return err
		}
		l.informer.metrics.told(entries[0])
		if entries, parts, err = l.broadcast(ctx, entries[0]); err != nil {
			return err
		}
		if parts > 0 {
			of = &copies{left: parts}
		}
	}
	for len(entries) > 0 {
		parcels, err := l.take(ctx, entries)
		if err != nil {
			return err
		}
		entries = entries[len(parcels):]
		if err := l.cfg.Publisher.Add(ctx, l.itemsOf(parcels, of)); err != nil {
			return err
		}
	}
	if alone {
		return l.waitEmpty(ctx)
	}
	return nil
}

// exists reports, with the end of a list, whether an object exists; nil with any other entry, and
// where an item of the list could not be read, which may be any object that is not known.
func (l *listener) exists(e *changelog.Entry) func(namespace, name string) (bool, error) {
	if e.Kind != changelog.OfListEnd || e.Listing.Unreadable > 0 {
		return nil
	}
	cfg := &l.informer.cfg
	return func(namespace, name string) (bool, error) {
		if !cfg.Shard.Has(cfg.Type, namespace, name) {
			return true, nil // as far as this replica knows
		}
		record, found, err := cfg.Indexer.Get(resource.MakeKey(namespace, name))
		return found && !record.Deleted, err
	}
}

// itemsOf makes the events of parcels, which are copies of one where of says so. The slice is used
// again.
func (l *listener) itemsOf(parcels []*parcel, of *copies) []*publisher.Item {
	l.items = l.items[:0]
	for i, p := range parcels {
		p.event = l.cfg.event(p.entry)
		if p.copies = of; of != nil {
			p.event = p.event.Copy(i)
		}
		p.item.Message = sinks.Message{Event: &p.event, Exists: l.exists(p.entry)}
		p.item.Cover = l.cover(p.entry)
		l.items = append(l.items, &p.item)
	}
	return l.items
}

// take waits for room in the window and takes parcels for the first of the entries, at least one.
func (l *listener) take(ctx context.Context, entries []*changelog.Entry) ([]*parcel, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := func() bool { return len(l.free) > 0 || len(l.parcels) < l.cfg.Window }
	if err := condition.Wait(ctx, l.cond, room); err != nil {
		return nil, err
	}
	return l.takeLocked(entries), nil
}

// tryTake takes a parcel for each of the entries, or none where the window has no room for all.
func (l *listener) tryTake(entries []*changelog.Entry) []*parcel {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free)+l.cfg.Window-len(l.parcels) < len(entries) {
		return nil
	}
	return l.takeLocked(entries)
}

// takeLocked takes parcels for the first of the entries, as far as the window has room.
func (l *listener) takeLocked(entries []*changelog.Entry) []*parcel {
	for len(l.free) < len(entries) && len(l.parcels) < l.cfg.Window {
		p := &parcel{}
		p.item.Settler, p.item.Seq = l, uint64(len(l.parcels))
		l.parcels = append(l.parcels, p)
		l.free = append(l.free, p)
	}
	n := min(len(entries), len(l.free))
	taken := append([]*parcel{}, l.free[len(l.free)-n:]...)
	l.free = l.free[:len(l.free)-n]
	for i, p := range taken {
		p.entry = entries[i]
	}
	return taken
}

// Settle is called by the publisher with items that are settled.
func (l *listener) Settle(items []*publisher.Item) {
	l.cursor.Ack(l.acks(items))
	l.takeBack(items)
	if l.levels != nil {
		l.settled.Add(1)
		l.informer.log.Wake()
	}
}

// acks is what this listener is done with when items are settled.
func (l *listener) acks(items []*publisher.Item) []changelog.Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	acks := make([]changelog.Ack, 0, len(items))
	for _, it := range items {
		p := l.parcels[it.Seq]
		ack := changelog.Ack{At: p.entry.Position}
		if it.Mark != nil {
			ack.Hold = it.Mark
			it.Mark = nil
		}
		if of := p.copies; of != nil {
			if ack.Hold != nil {
				of.holds = append(of.holds, ack.Hold)
				ack.Hold = of.holds
			}
			if of.left--; of.left > 0 {
				continue
			}
		}
		if p.first != nil {
			acks = append(acks, changelog.Ack{At: p.first.Position})
		}
		acks = append(acks, ack)
	}
	return acks
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
		p.entry, p.first, p.level, p.copies, p.event = nil, nil, nil, nil, event.Event{}
		l.free = append(l.free, p)
	}
	l.cond.Broadcast()
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

// oldest is when the oldest change was observed that was read and is not settled; zero when there
// is none.
func (l *listener) oldest() time.Time {
	oldest := l.cursor.Oldest()
	if l.levels == nil {
		return oldest
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.levels.all() { // what has collapsed is settled, and counts
		if oldest.IsZero() || s.observed.Before(oldest) {
			oldest = s.observed
		}
	}
	return oldest
}
