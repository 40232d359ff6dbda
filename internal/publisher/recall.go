package publisher

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/kubebridge/bridge/internal/event"
)

// maxRecalled bounds how many ids are remembered, at some 50 bytes each. A tail holds what was sent in the seconds before a crash; one that is
// longer, because something was held up for hours, is remembered by its end.
const maxRecalled = 1 << 20

// recalled are the ids of what an earlier process has stored. They leave as they are met; those that the checkpoint knew of
// too are not met and stay.
type recalled struct {
	seeds [2]maphash.Seed
	left  atomic.Int64 // len(ids)

	mu   sync.Mutex
	ids  map[digest]struct{}
	ring []digest // in the order they were found
	next int      // the place in ring of the next one, once it is full
}

// digest stands for an id. Seeded, so that nobody can make two ids meet.
type digest [2]uint64

func newRecalled() *recalled {
	return &recalled{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, ids: map[digest]struct{}{}}
}

// found notes an id that was read back.
func (r *recalled) found(id string) {
	d := digest{maphash.String(r.seeds[0], id), maphash.String(r.seeds[1], id)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.ids[d]; ok {
		return
	}
	if len(r.ring) < maxRecalled {
		r.ring = append(r.ring, d)
	} else {
		delete(r.ids, r.ring[r.next])
		r.ring[r.next] = d
		r.next = (r.next + 1) % maxRecalled
	}
	r.ids[d] = struct{}{}
	r.left.Store(int64(len(r.ids)))
}

// seal ends the finding.
func (r *recalled) seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring = nil
}

// take says whether an event was found, and forgets it: what has the same id again later is meant to be sent.
func (r *recalled) take(e *event.Event) bool {
	if r.left.Load() == 0 {
		return false
	}
	d := r.digest(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.ids[d]; !ok {
		return false
	}
	delete(r.ids, d)
	r.left.Store(int64(len(r.ids)))
	return true
}

// digest of an event's MessageID, without making it.
func (r *recalled) digest(e *event.Event) (d digest) {
	var h maphash.Hash
	for i := range d {
		h.SetSeed(r.seeds[i])
		_, _ = h.WriteString(e.Informer) // never fails
		_ = h.WriteByte('/')
		_, _ = h.WriteString(e.ID)
		d[i] = h.Sum64()
	}
	return d
}

// recall reads back what an earlier process has stored behind the saved position, where the sink can.
func (p *Publisher) recall(ctx context.Context) error {
	if p.marks.sink == nil {
		return nil
	}
	if err := p.marks.sink.Recall(ctx, p.saved, p.recalled.found); err != nil {
		return err
	}
	p.recalled.seal()
	if n := p.recalled.left.Load(); n > 0 {
		p.log.Info("read back what the sink holds since the last checkpoint; it is not sent again", "messages", n)
	}
	p.marks.open()
	return nil
}

// recognize settles in advance the items that an earlier process has stored.
func (p *Publisher) recognize(items []*Item) {
	for _, it := range items {
		if p.recalled.take(it.Message.Event) {
			it.acked, it.recalled = true, true
			p.metrics.recalled.Inc()
		}
	}
}
