package deltafifo

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/condition"
	"github.com/kubebridge/bridge/internal/resource"
)

// ErrClosed is returned by the adding methods after Close, and by Pop when nothing is left.
var ErrClosed = errors.New("deltafifo is closed")

// KnownObjects answers which objects the controller knows.
type KnownObjects interface {
	// Missing yields the objects that are known, are not newer than version (unless the server's history went back, or their namespace
	// has left), and were not marked as listed since the last ReplaceBegin was handed out. Of a Relist with a namespace only those in it. The
	// FIFO calls it from Pop, without holding its lock, after everything before the ReplaceEnd was handed out. A second value of the sequence that is
	// an error ends it.
	Missing(version resource.Version, why resource.Relist) iter.Seq2[resource.Key, error]
}

// Config of a FIFO. Zero values mean what is said there.
type Config struct {
	// MaxBytes that wait; default 16 MiB. One object that is larger passes alone.
	MaxBytes int
	// Known objects; required.
	Known KnownObjects
	// Resumed is set when the known objects are the whole state already, and the stream goes on from there.
	Resumed bool
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// FIFO is the queue. All methods may be called concurrently, but for Pop, which is one controller's.
type FIFO struct {
	cfg     Config
	metrics *metrics

	// Owned by Pop: the inferred deletes of the ReplaceEnd that is being handed out.
	sweep *sweep

	mu   sync.Mutex
	cond *sync.Cond // signalled when any field below changes in a way somebody waits for
	// queue holds the entries in order; queue[:head] was handed out.
	queue []*entry
	head  int
	// open finds the entry that a delta of a key joins. It is emptied at a barrier.
	open     map[resource.Key]*entry
	bytes    int
	lastSeq  uint64
	closed   bool
	relist   *resource.Relist // of the BeginReplace that has no EndReplace yet
	sparing  bool             // in that list is something of which nobody knows which object it is
	replaces int              // ReplaceEnds that wait or are being handed out
	filled   bool             // the first population, or the first change, has been added
	free     []*entry         // entries to use again
}

// entry is what waits for one key, or one mark.
type entry struct {
	Deltas
	bytes int
}

// New makes an empty FIFO.
func New(cfg Config) (*FIFO, error) {
	if cfg.Known == nil {
		return nil, errors.New("deltafifo: known objects are required")
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, 16<<20)
	f := &FIFO{cfg: cfg, open: map[resource.Key]*entry{}, filled: cfg.Resumed, metrics: newMetrics(cfg.Registerer, cfg.MaxBytes)}
	f.cond = sync.NewCond(&f.mu)
	f.registerObjects(cfg.Registerer)
	return f, nil
}

// Add queues an object that the watch says was added.
func (f *FIFO) Add(ctx context.Context, obj *resource.Object) error {
	return f.put(ctx, obj.Key(), Delta{Type: Added, Object: obj})
}

// Update queues a new state of an object.
func (f *FIFO) Update(ctx context.Context, obj *resource.Object) error {
	return f.put(ctx, obj.Key(), Delta{Type: Updated, Object: obj})
}

// Delete queues the deletion of an object, with its last state. Before a list's end it is part of the list: what was deleted while that was told.
func (f *FIFO) Delete(ctx context.Context, obj *resource.Object) error {
	return f.put(ctx, obj.Key(), Delta{Type: Deleted, Object: obj})
}

// Replace queues one item of a list.
func (f *FIFO) Replace(ctx context.Context, obj *resource.Object) error {
	return f.put(ctx, obj.Key(), Delta{Type: Replaced, Object: obj})
}

// Unselected queues the news of an object that is not selected, or is gone and was not in its last state, wherever the stream tells of it. Of the
// object only its Identity is kept.
func (f *FIFO) Unselected(ctx context.Context, obj *resource.Object, gone bool) error {
	return f.put(ctx, obj.Key(), Delta{Type: Unselected, Object: obj.Identity(), Gone: gone})
}

// Passed queues the news that everything up to version was sent, which is no word of the API server but what was read so far.
func (f *FIFO) Passed(ctx context.Context, version resource.Version) error {
	return f.put(ctx, "", Delta{Type: Bookmark, Version: version, Passed: true})
}

// Bookmark queues the news that everything up to version was sent.
func (f *FIFO) Bookmark(ctx context.Context, version resource.Version) error {
	return f.put(ctx, "", Delta{Type: Bookmark, Version: version})
}

// BeginReplace queues the news that a list follows, or of a selection of namespaces (Only). A BeginReplace before it that had no EndReplace is
// given up.
func (f *FIFO) BeginReplace(ctx context.Context, why resource.Relist) error {
	return f.put(ctx, "", Delta{Type: ReplaceBegin, Relist: &why})
}

// Spare queues the news that a list holds something that can't be understood, of an object, or of nobody knows which (no key).
func (f *FIFO) Spare(ctx context.Context, of resource.Identity) error {
	return f.put(ctx, of.Key, Delta{Type: Spared, Spared: &of})
}

// EndReplace queues the news that the list was complete, as of version.
func (f *FIFO) EndReplace(ctx context.Context, version resource.Version) error {
	return f.put(ctx, "", Delta{Type: ReplaceEnd, Version: version})
}

// Quarantine queues the news of something that can't be understood.
func (f *FIFO) Quarantine(ctx context.Context, u *resource.Unreadable) error {
	return f.put(ctx, "", Delta{Type: Quarantined, Unreadable: u})
}

// Resync queues a Sync of a known object, unless a change of it waits anyway. The set says whom the controller shall tell.
func (f *FIFO) Resync(ctx context.Context, key resource.Key, set uint64) error {
	return f.put(ctx, key, Delta{Type: Sync, Resync: set})
}

// Snapshot queues a Sync of a known object that comes in any case, behind the changes of it that wait. The set says whom the controller shall
// tell; the round, which is not 0, tells one snapshot from another.
func (f *FIFO) Snapshot(ctx context.Context, key resource.Key, set uint64, round int64) error {
	return f.put(ctx, key, Delta{Type: Sync, Resync: set, Round: round})
}

// put waits for room and queues a delta.
func (f *FIFO) put(ctx context.Context, key resource.Key, d Delta) error {
	size := d.size()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := condition.Wait(ctx, f.cond, func() bool { return f.closed || f.bytes == 0 || f.bytes+size <= f.cfg.MaxBytes }); err != nil {
		return err
	}
	if f.closed {
		return ErrClosed
	}
	if e := f.open[key]; d.Type == Sync && d.Round == 0 && e != nil && e.join(d.Resync) {
		return nil
	}
	f.lastSeq++
	d.Seq = f.lastSeq
	f.queueLocked(key, d, size)
	f.metrics.added(d.Type, f.bytes)
	f.cond.Broadcast()
	return nil
}

// queueLocked puts a delta into the entry of its key, or makes one.
func (f *FIFO) queueLocked(key resource.Key, d Delta, size int) {
	switch d.Type {
	case ReplaceBegin:
		if f.relist = d.Relist; d.Relist.Only {
			f.relist = nil
		}
		f.sparing = false
		clear(f.open)
	case ReplaceEnd:
		d.Relist, f.relist = f.ended(), nil
		f.replaces++
		f.filled = true
		clear(f.open)
	case Spared:
		f.sparing = f.sparing || key == ""
	case Replaced, Quarantined:
	default:
		f.filled = f.filled || f.relist == nil
		d.Listed = (d.Type == Unselected || d.Type == Deleted) && f.relist != nil
	}
	e := f.open[key]
	if e == nil || key == "" {
		e = f.entryLocked(key)
		f.queue = append(f.queue, e)
		if key != "" {
			f.open[key] = e
		}
	}
	grown := e.append(d, size)
	e.bytes += grown
	f.bytes += grown
}

// ended is the Relist that its ReplaceEnd bears. Whoever was handed the ReplaceBegin has the other.
func (f *FIFO) ended() *resource.Relist {
	if f.relist == nil || !f.sparing {
		return f.relist
	}
	why := *f.relist
	why.Sparing = true
	return &why
}

// join adds to those whom a waiting Sync is for; where a change waits, they will be told that. It is false behind a snapshot's Sync, which
// may be for others.
func (e *entry) join(set uint64) bool {
	last := &e.Items[len(e.Items)-1]
	if last.Type != Sync {
		return true
	}
	if last.Round != 0 {
		return false
	}
	last.Resync |= set
	return true
}

// append adds a delta of a size behind those of its object, and says by how many bytes it has grown. Of two deletes in a row only the later is kept.
func (e *entry) append(d Delta, size int) int {
	if last := len(e.Items) - 1; last >= 0 {
		before := &e.Items[last]
		sameObject := before.Object != nil && d.Object != nil && before.Object.UID == d.Object.UID
		if sameObject && before.Type == Deleted && d.Type == Deleted {
			e.Collapsed = append(e.Collapsed, before.Seq)
			size -= before.size()
			*before = d
			return size
		}
	}
	e.Items = append(e.Items, d)
	return size
}

// syncSize is what a Sync counts against the bound, though it carries nothing: the controller looks its object up, and that is in memory then.
// Few objects are larger.
const syncSize = 16 << 10

// size of what a delta carries, in bytes.
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

// entryLocked takes a free entry, or makes one.
func (f *FIFO) entryLocked(key resource.Key) *entry {
	if n := len(f.free); n > 0 {
		e := f.free[n-1]
		f.free = f.free[:n-1]
		e.Key = key
		return e
	}
	return &entry{Deltas: Deltas{Key: key}}
}

// Close lets Pop hand out what is left and makes the adding methods return ErrClosed.
func (f *FIFO) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.cond.Broadcast()
}

// HasSynced says whether the first population was handed out and applied: everything of the first list, its end included
// and the batch it came in followed by another Pop; at once when the stream is resumed, or began with a
// change.
func (f *FIFO) HasSynced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.filled && f.replaces == 0
}

// Stats are what waits, for status and metrics.
type Stats struct {
	Entries  int
	Bytes    int
	MaxBytes int
}

// Stats says what waits.
func (f *FIFO) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Stats{Entries: len(f.queue) - f.head, Bytes: f.bytes, MaxBytes: f.cfg.MaxBytes}
}
