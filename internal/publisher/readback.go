package publisher

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// SavedPosition is what the last checkpoint of an earlier process has about a sink.
type SavedPosition struct {
	// Position is the result of Publisher.Position; nil for none.
	Position []byte
	// ReadBackIDs is the result of Publisher.ReadBackIDs.
	ReadBackIDs []byte
}

// maxReadBack bounds how many ids are remembered, at some 60 bytes each. A tail holds the messages
// of the seconds before a crash. Of a longer tail, where something was held up for hours, the end
// is remembered.
const maxReadBack = 1 << 20

// keepReadBack is how long ids are remembered: by then every informer has read on from its
// position, or can't.
const keepReadBack = time.Hour

// readBackSet has the ids of messages that earlier processes have stored and that may be added
// again. The checkpoint has them too: should this process end before the informers have come that
// far, the next one must know them, and its own position has passed them.
type readBackSet struct {
	left atomic.Int64 // len(ids)

	mu     sync.Mutex
	ids    map[idDigest]struct{}
	list   []byte // digests one after the other, in the order they were found
	next   int    // the index in list of the next one, once it is full
	shared bool   // list was given out
	until  time.Time
}

// idDigest stands for a MessageID.
type idDigest [16]byte

func newReadBackSet(saved []byte) *readBackSet {
	r := &readBackSet{ids: map[idDigest]struct{}{}}
	for d := range slices.Chunk(saved, len(idDigest{})) {
		if len(d) == len(idDigest{}) {
			r.insert(idDigest(d))
		}
	}
	return r
}

// found adds an id that was read back. An id found after the start is remembered for as long from
// then on.
func (r *readBackSet) found(id string) {
	r.insert(digestOf([]byte(id)))
	r.mu.Lock()
	sealed := !r.until.IsZero()
	r.mu.Unlock()
	if sealed {
		r.seal(time.Now())
	}
}

func (r *readBackSet) insert(d idDigest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.ids[d]; ok {
		return
	}
	if len(r.list) < maxReadBack*len(d) {
		r.list = append(r.list, d[:]...)
	} else {
		r.list = r.ownLocked()
		oldest := r.list[r.next*len(d):]
		delete(r.ids, idDigest(oldest[:len(d)]))
		copy(oldest, d[:])
		r.next = (r.next + 1) % maxReadBack
	}
	r.ids[d] = struct{}{}
	r.left.Store(int64(len(r.ids)))
}

// ownLocked returns the list for writing: a slice that save has returned does not change.
func (r *readBackSet) ownLocked() []byte {
	if r.shared {
		r.shared = false
		return slices.Clone(r.list)
	}
	return r.list
}

// seal ends the reading at the start.
func (r *readBackSet) seal(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = now.Add(keepReadBack)
}

func (r *readBackSet) has(e *event.Event) bool {
	if r.left.Load() == 0 {
		return false
	}
	var buf [256]byte
	id := append(append(append(buf[:0], e.Informer...), '/'), e.ID...) // its MessageID
	d := digestOf(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.ids[d]
	return ok
}

func digestOf(id []byte) idDigest {
	sum := sha256.Sum256(id)
	return idDigest(sum[:len(idDigest{})])
}

// save returns the ids for a checkpoint, while they are of use. The slice does not change.
func (r *readBackSet) save(now time.Time) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.until.IsZero() && now.After(r.until) && r.list != nil {
		r.list = nil
		clear(r.ids)
		r.left.Store(0)
	}
	r.shared = true
	return r.list
}

// readBack reads back the messages that an earlier process has stored behind the saved position,
// where the sink can.
func (p *Publisher) readBack(ctx context.Context) error {
	if p.holds.sink == nil {
		return nil
	}
	if err := p.holds.sink.ReadBack(ctx, p.cfg.Saved.Position, p.readBackIDs.found); err != nil {
		return err
	}
	p.readBackIDs.seal(time.Now())
	if n := p.readBackIDs.left.Load(); n > 0 {
		p.cfg.Log.Info("read back what the sink holds since the last checkpoint; it is not sent again",
			"messages", n)
	}
	p.holds.open()
	return nil
}

// recognize settles in advance an item that an earlier process has stored, or put into the dead
// letters. An event with a Run is sent again: an older state of its object may have been sent again
// before it, which the earlier process had skipped.
func (p *Publisher) recognize(it *Item) {
	if it.Message.Event.Run == "" && p.readBackIDs.has(it.Message.Event) {
		it.apply(onReadBack)
		it.refused = nil
		p.metrics.readBack.Inc()
	}
}

// ReadBackIDs returns the ids that a checkpoint has to save with a Position, so that the next
// process knows what this one did not send. It is empty after an hour. The slice does not change.
func (p *Publisher) ReadBackIDs() []byte { return p.readBackIDs.save(time.Now()) }

// Position returns where the sink's log has to be read from after a crash at this moment, nil while
// there is no answer: the sink is no sinks.ReadBacker, or not open yet. A commit calls it before it
// takes what is settled, and saves it.
func (p *Publisher) Position() []byte {
	p.inDoubt.expire(time.Now())
	return p.holds.low()
}

// FindEarlierRun reports whether the sink's broker holds events of an earlier run, by ours: see
// sinks.EarlierRunFinder. It waits until the sink is open. It reports false for a sink that can't
// look.
func (p *Publisher) FindEarlierRun(
	ctx context.Context, about *event.Event, ours func(sinks.Trace) bool,
) (bool, error) {
	sink, ok := p.cfg.Sink.(sinks.EarlierRunFinder)
	if !ok {
		return false, nil
	}
	select {
	case <-p.opened:
	case <-p.users.closed:
		return false, ErrStopped
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if !p.users.enter() {
		return false, ErrStopped
	}
	defer p.users.leave()
	found, err := sink.FindEarlierRun(ctx, about, ours)
	if err != nil {
		return false, fmt.Errorf("sink %s: %w", p.cfg.Name, err)
	}
	return found, nil
}
