package deltafifo

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/resource"
)

// DeltaType is what happened, as client-go names it. Bookmark, ReplaceBegin, ReplaceEnd,
// Quarantined and Skipped are about the stream rather than a change of an object. Skipped is an
// item of a list that can't be understood. Unselected is an object that is not selected: only the
// controller knows whether it was before. Lost is that a sink's destination lacks events.
type DeltaType uint8

// The types of deltas.
const (
	Added DeltaType = iota + 1
	Updated
	Deleted
	Replaced
	Sync
	Bookmark
	ReplaceBegin
	ReplaceEnd
	Quarantined
	Skipped
	Unselected
	Lost

	typesEnd // of the list
)

func (t DeltaType) String() string {
	return [...]string{
		"?", "Added", "Updated", "Deleted", "Replaced", "Sync", "Bookmark", "ReplaceBegin",
		"ReplaceEnd",
		"Quarantined", "Skipped", "Unselected", "Lost",
	}[t]
}

// Delta is one change of an object, or one event of the stream.
type Delta struct {
	Type DeltaType
	// Key of the object; "" for events of the stream, except for a Skipped with a known object.
	Key resource.Key
	// Object is the state after the change; for Deleted the last state; for Unselected its
	// Identity. It is nil for events of the stream. It is also nil for Sync and for a Deleted with
	// FinalStateUnknown: the controller looks up their state when it processes them.
	Object *resource.Object
	// Gone is set on an Unselected that does not exist any more. Listed is set on an Unselected or
	// a Deleted that came between a ReplaceBegin and its ReplaceEnd.
	Gone, Listed bool
	// FinalStateUnknown is set on a Deleted that was inferred from a list: the last state was not
	// seen (client-go's DeletedFinalStateUnknown).
	FinalStateUnknown bool
	// Version of a Bookmark, or of a list.
	Version resource.Version
	// Progress is set on a Bookmark that is not the API server's: the reflector reports how far it
	// has read.
	Progress bool
	// Relist of a ReplaceBegin or ReplaceEnd, and of a Deleted with FinalStateUnknown.
	Relist *resource.Relist
	// Unreadable of a Quarantined.
	Unreadable *resource.Unreadable
	// Skipped is the identity of a Skipped, as far as it is known.
	Skipped *resource.Identity
	// Listeners is, on a Sync or a Lost, the set of listeners that get it.
	Listeners uint64
	// Round is, on a Sync, the number of the resync period or of the snapshot; on a Lost, its own.
	Round int64
	// Snapshot is set on a Sync of a requested snapshot, which is never dropped.
	Snapshot bool
	// After is, on a Sync of a resync period, the number of the newest change when it was queued. A
	// later change of the object makes the Sync needless.
	After uint64
}

// Deltas are in stream order.
type Deltas []Delta

// syncSize is what a Sync counts against the bound. It carries no object, but the controller loads
// one to process it. Few objects are larger.
const syncSize = 16 << 10

// size returns the bytes that a delta carries.
func (d *Delta) size() int {
	switch {
	case d.Type == Sync:
		return syncSize
	case d.Object != nil:
		return d.Object.Size()
	case d.Unreadable != nil:
		return d.Unreadable.Bytes()
	}
	return 0
}

// ErrClosed is returned by the adding methods after Close, and by Pop when nothing is left.
var ErrClosed = errors.New("deltafifo is closed")

// KnownObjects finds the objects that a list implies to be deleted.
type KnownObjects interface {
	// Missing yields the known objects that were not listed since the last ReplaceBegin was
	// processed, and are not newer than version. After a rewind, or when their namespace has left,
	// newer ones count too. For a Relist with a namespace it yields only objects in it. Pop calls
	// it when everything before the ReplaceEnd was processed, and processes the yielded keys while
	// it runs. An error ends the sequence.
	Missing(version resource.Version, why resource.Relist) iter.Seq2[resource.Key, error]
}

// Config of a FIFO. Zero values mean what is said there.
type Config struct {
	// MaxBytes bounds the queued objects; default 16 MiB. A larger object passes alone.
	MaxBytes int
	// Account bounds them together with other queues; nil for MaxBytes alone.
	Account *ratelimit.Account
	// Known objects; required.
	Known KnownObjects
	// Resumed is set when the known objects are the whole state already, and the stream continues
	// from there.
	Resumed bool
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// FIFO is the queue. All methods may be called concurrently, except Pop, which one controller
// calls.
type FIFO struct {
	cfg     Config
	metrics *metrics
	spot    *ratelimit.Spot // where Pop waits
	synced  atomic.Bool

	// Owned by Pop.
	batch Deltas    // what is being processed
	list  listState // of what was handed out

	mu     sync.Mutex // guards all below
	items  Deltas     // items[head:] wait, in stream order
	head   int
	taken  int           // deltas that were taken out and are being processed
	bytes  int           // of items[head:]
	room   chan struct{} // closed when bytes fall; nil while nobody waits for that
	closed bool
	err    error // of the Processor, or of KnownObjects
	// flushed is when Flush last found deltas, and flood is set when that was a moment after the
	// time before.
	flushed time.Time
	flood   bool
}

// New makes an empty FIFO.
func New(cfg Config) (*FIFO, error) {
	if cfg.Known == nil {
		return nil, errors.New("deltafifo: known objects are required")
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 16<<20)
	metrics := newMetrics(cfg.Registerer, cfg.MaxBytes)
	f := &FIFO{cfg: cfg, metrics: metrics, spot: ratelimit.NewSpot()}
	f.synced.Store(cfg.Resumed)
	registerDeltas(cfg.Registerer, func() int { return f.Stats().Deltas })
	return f, nil
}

// Add queues an object that the watch reports as added.
func (f *FIFO) Add(ctx context.Context, obj *resource.Object) error {
	return f.put(ctx, Delta{Type: Added, Key: obj.Key(), Object: obj})
}

// Update queues a new state of an object.
func (f *FIFO) Update(ctx context.Context, obj *resource.Object) error {
	return f.put(ctx, Delta{Type: Updated, Key: obj.Key(), Object: obj})
}

// Delete queues the deletion of an object, with its last state. Before a list's end it is part of
// the list: the object was deleted while the list was read.
func (f *FIFO) Delete(ctx context.Context, obj *resource.Object) error {
	return f.put(ctx, Delta{Type: Deleted, Key: obj.Key(), Object: obj})
}

// Replace queues one item of a list.
func (f *FIFO) Replace(ctx context.Context, obj *resource.Object) error {
	return f.put(ctx, Delta{Type: Replaced, Key: obj.Key(), Object: obj})
}

// Unselected queues the Identity of an object that is not selected, or is gone and was not selected
// in its last state.
func (f *FIFO) Unselected(ctx context.Context, obj *resource.Object, gone bool) error {
	return f.put(ctx, Delta{Type: Unselected, Key: obj.Key(), Object: obj.Identity(), Gone: gone})
}

// Progress queues a Bookmark of the reflector: everything up to version was read.
func (f *FIFO) Progress(ctx context.Context, version resource.Version) error {
	return f.put(ctx, Delta{Type: Bookmark, Version: version, Progress: true})
}

// Bookmark queues a Bookmark of the API server: everything up to version was sent.
func (f *FIFO) Bookmark(ctx context.Context, version resource.Version) error {
	return f.put(ctx, Delta{Type: Bookmark, Version: version})
}

// BeginReplace begins a list. A RelistSelection has no list: it only brings another selection of
// namespaces. A BeginReplace without an EndReplace before it is given up.
func (f *FIFO) BeginReplace(ctx context.Context, why resource.Relist) error {
	return f.put(ctx, Delta{Type: ReplaceBegin, Relist: &why})
}

// Skip queues an item of the list that can't be understood. Without a key it may be any object.
func (f *FIFO) Skip(ctx context.Context, of resource.Identity) error {
	return f.put(ctx, Delta{Type: Skipped, Key: of.Key, Skipped: &of})
}

// EndReplace ends a list that was complete, as of version.
func (f *FIFO) EndReplace(ctx context.Context, version resource.Version) error {
	return f.put(ctx, Delta{Type: ReplaceEnd, Version: version})
}

// Quarantine queues data that can't be understood.
func (f *FIFO) Quarantine(ctx context.Context, u *resource.Unreadable) error {
	return f.put(ctx, Delta{Type: Quarantined, Unreadable: u})
}

// Resync queues a Sync of a known object, for a set of listeners. after is the number of the newest
// change of any object. The controller drops the Sync if it has decided a later change of this
// object before.
func (f *FIFO) Resync(
	ctx context.Context, key resource.Key, listeners uint64, round int64, after uint64,
) error {
	return f.put(ctx, Delta{Type: Sync, Key: key, Listeners: listeners, Round: round, After: after})
}

// Snapshot queues a Sync of a known object that is never dropped, for a set of listeners.
func (f *FIFO) Snapshot(ctx context.Context, key resource.Key, listeners uint64, round int64) error {
	d := Delta{Type: Sync, Key: key, Listeners: listeners, Round: round, Snapshot: true}
	return f.put(ctx, d)
}

// Lose queues that the destinations of a set of listeners have lost events.
func (f *FIFO) Lose(ctx context.Context, listeners uint64, round int64) error {
	return f.put(ctx, Delta{Type: Lost, Listeners: listeners, Round: round})
}

// Flush processes queued deltas on this goroutine, where Pop waits and nothing else has to be
// waited for. A producer of Added, Updated, Deleted, Unselected or Bookmark calls Flush before it
// waits for anything. The other types need no Flush.
func (f *FIFO) Flush() {
	now := time.Now()
	f.mu.Lock()
	isEmpty := len(f.items) == f.head
	if !isEmpty {
		f.flood, f.flushed = now.Sub(f.flushed) < floodGap, now
	}
	f.mu.Unlock()
	if !isEmpty {
		f.spot.Offer()
	}
}

// floodGap is how soon one Flush follows another in a flood. Then Pop processes the deltas in large
// batches, while the producer reads on.
const floodGap = 100 * time.Microsecond

// stepSize and stepBytes bound what a step processes: more pays for a goroutine of its own.
const (
	stepSize  = 32
	stepBytes = resource.LargeBytes
)

// put waits for room and queues a delta.
func (f *FIFO) put(ctx context.Context, d Delta) error {
	now, err := f.enqueue(ctx, &d)
	if now {
		f.spot.Offer()
	}
	return err
}

// enqueue queues a delta, and reports whether it is processed without a Flush.
func (f *FIFO) enqueue(ctx context.Context, d *Delta) (now bool, err error) {
	size := d.size()
	resource.NoteLarge(size)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.waitRoomLocked(ctx, size); err != nil {
		return false, err
	}
	f.items = append(f.items, *d)
	f.bytes += size
	f.cfg.Account.Set(f.bytes)
	f.metrics.added(d.Type, f.bytes)
	switch d.Type {
	case Added, Updated, Deleted, Unselected, Bookmark:
		return len(f.items)-f.head >= stepSize || f.bytes >= stepBytes, nil
	default:
		return true, nil
	}
}

// waitRoomLocked waits until there is room for size bytes. It releases the lock while it waits.
func (f *FIFO) waitRoomLocked(ctx context.Context, size int) error {
	for !f.closed && f.bytes > 0 && f.bytes+size > f.cfg.Account.Bound(f.cfg.MaxBytes) {
		if f.room == nil {
			f.room = make(chan struct{})
		}
		room := f.room
		f.mu.Unlock()
		f.spot.Offer()
		select {
		case <-room:
			f.mu.Lock()
		case <-ctx.Done():
			f.mu.Lock()
			return context.Cause(ctx)
		}
	}
	if f.closed {
		return ErrClosed
	}
	return nil
}

// makeRoomLocked wakes those that wait for room.
func (f *FIFO) makeRoomLocked() {
	if f.room != nil {
		close(f.room)
		f.room = nil
	}
}

// Close lets Pop return the rest, and makes the adding methods return ErrClosed.
func (f *FIFO) Close() { f.end(nil) }

// end closes the FIFO. With an error nothing more is handed out.
func (f *FIFO) end(err error) {
	f.mu.Lock()
	f.closed = true
	if f.err == nil {
		f.err = err
	}
	f.makeRoomLocked()
	f.mu.Unlock()
	f.spot.Offer()
}

// HasSynced reports whether the first population was processed: the first list with its end, or the
// first change where the stream began without a list. It is true at once when the stream is
// resumed.
func (f *FIFO) HasSynced() bool { return f.synced.Load() }

// Stats are for status and metrics.
type Stats struct {
	// Deltas that are not processed yet.
	Deltas int
	// Bytes of the deltas that are not being processed yet, and their bound.
	Bytes, MaxBytes int
}

// Stats counts the deltas that are queued.
func (f *FIFO) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Stats{Deltas: len(f.items) - f.head + f.taken, Bytes: f.bytes, MaxBytes: f.cfg.MaxBytes}
}

// listState is the list to which the next delta belongs.
type listState struct {
	relist *resource.Relist // of the ReplaceBegin that has no ReplaceEnd yet; nil between lists
	// in that list is something of which nobody knows which object it is
	incomplete bool
}

// annotate sets on deltas, in stream order, which list they belong to, and reports whether a first
// population ends with them.
func (l *listState) annotate(d Deltas) (synced bool) {
	for i := range d {
		switch d := &d[i]; d.Type {
		case ReplaceBegin:
			l.relist, l.incomplete = d.Relist, false
			if d.Relist.Kind == resource.RelistSelection {
				l.relist = nil
			}
		case ReplaceEnd:
			d.Relist, l.relist = l.ended(), nil
			synced = true
		case Skipped:
			l.incomplete = l.incomplete || d.Key == ""
		case Replaced, Quarantined, Lost:
		default:
			synced = synced || l.relist == nil
			d.Listed = (d.Type == Unselected || d.Type == Deleted) && l.relist != nil
		}
	}
	return synced
}

// ended returns the Relist of a ReplaceEnd. The processor has the ReplaceBegin's, so an incomplete
// list gets a copy.
func (l *listState) ended() *resource.Relist {
	if l.relist == nil || !l.incomplete {
		return l.relist
	}
	why := *l.relist
	why.Incomplete = true
	return &why
}

// metrics of one FIFO. Every method is called with the FIFO's lock held and does not block.
type metrics struct {
	deltas [typesEnd]*metric.Counter // by DeltaType
	bytes  *metric.Gauge
}

func newMetrics(reg prometheus.Registerer, maxBytes int) *metrics {
	f := metric.With(reg)
	deltas := f.Counters("bridge_deltafifo_deltas_total", "Deltas queued, by type.", "type")
	m := &metrics{
		bytes: f.Gauge("bridge_deltafifo_queued_bytes", "Bytes of objects that wait for the "+
			"controller."),
	}
	f.Gauge("bridge_deltafifo_capacity_bytes",
		"Bytes that may wait for the controller before the reflector "+
			"blocks.").Set(float64(maxBytes))
	for t := Added; t < typesEnd; t++ {
		m.deltas[t] = deltas.With(t.String())
	}
	return m
}

func (m *metrics) added(t DeltaType, bytes int) {
	m.deltas[t].Inc()
	m.bytes.Set(float64(bytes))
}

func (m *metrics) popped(bytes int) { m.bytes.Set(float64(bytes)) }

func registerDeltas(reg prometheus.Registerer, queued func() int) {
	metric.With(reg).GaugeFunc("bridge_deltafifo_queued_deltas",
		"Deltas that the controller has not processed yet.",
		func() float64 { return float64(queued()) })
}
