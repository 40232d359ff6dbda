package http

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

const (
	// batchBytes bounds the body of a request with several events.
	batchBytes = 1 << 20
	// maxCalls bounds the calls of Publish at once, whose events make the batches.
	maxCalls = 2000

	batchContentType = "application/cloudevents-batch+json"
)

// batcher joins the events of calls of Publish in requests of the batched content mode. There is
// at most one call for an object at a time, so a batch has one event of an object, and the order of
// an object is that of the calls. While all slots are in use, events gather; without events that
// wait, a batch has one event and is sent at once.
type batcher struct {
	mu      sync.Mutex
	pending []*entry        // guarded by mu: oldest first
	most    int             // guarded by mu: events in a request; 413 lowers it
	limit   int             // the most that the configuration allows
	alone   map[string]bool // guarded by mu: objects whose events are sent without others
}

// entry is the event of a call.
type entry struct {
	object   string
	document []byte
	taken    context.CancelFunc // called when the event is in a batch: the call awaits its answer
	answer   chan error         // of the batch; it holds one
}

func newBatcher(limit int) *batcher {
	return &batcher{most: limit, limit: limit, alone: map[string]bool{}}
}

// errAlone is the answer of a batch that was not settled as a whole.
var errAlone = errors.New("the batch was not settled")

// publish posts an event in a batch. When the endpoint does not settle the batch, each of its
// events is posted alone, by its own call, until that one is settled: so an event that the endpoint
// can't handle, or hangs on, stops its own object only. 429 is about no event.
func (s *Sink) publish(ctx context.Context, e *event.Event) error {
	object := e.Informer + "/" + e.PartitionKey
	if !s.batches.mustBeAlone(object) {
		if err := s.postTogether(ctx, object, e); !errors.Is(err, errAlone) {
			return err
		}
	}
	err := s.post(ctx, s.events, e)
	if err == nil || sinks.Classify(err) == sinks.Refused {
		s.batches.join(object)
	}
	return err
}

// postTogether waits for a slot, and posts a batch that begins with the event, or returns the
// answer of the batch that another call has put the event into.
func (s *Sink) postTogether(ctx context.Context, object string, e *event.Event) error {
	m, err := encode(e, s.encoding, false)
	if err != nil {
		return err
	}
	if err := s.pause.wait(ctx); err != nil {
		return err
	}
	waiting, taken := context.WithCancel(ctx)
	defer taken()
	mine := &entry{object: object, document: m.body, taken: taken, answer: make(chan error, 1)}
	s.batches.add(mine)
	leave, err := s.slots.enter(waiting)
	if err == nil {
		if batch := s.batches.take(mine); batch != nil {
			return s.postBatch(ctx, leave, batch)
		}
		leave(false)
	} else if s.batches.remove(mine) {
		return fmt.Errorf("%w: %w", sinks.ErrNotSent, err)
	}
	select {
	case err := <-mine.answer:
		return err
	case <-ctx.Done():
		return &sinks.Error{Class: sinks.Stopped, Err: ctx.Err()}
	}
}

// postBatch posts a batch and gives the other calls their answer. A batch of one has the answer of
// its event.
func (s *Sink) postBatch(ctx context.Context, leave func(bool), batch []*entry) error {
	status, err := s.send(ctx, http.MethodPost, s.events, joined(batch, s.encoding))
	leave(err == nil)
	if err == nil {
		err = classified(s.events, status)
	}
	s.batches.learn(len(batch), status)
	answer := err
	if aboutEvent := err != nil && status != http.StatusTooManyRequests &&
		sinks.Classify(err) != sinks.Reconnect; aboutEvent {
		s.batches.separate(batch)
		answer = errAlone
	}
	for _, other := range batch[1:] {
		other.answer <- answer
	}
	if len(batch) == 1 || ctx.Err() != nil {
		return err
	}
	return answer
}

// joined is the request with the events of a batch. Its id is that of exactly this body: receivers
// that drop repeats by it then drop no other event.
func joined(batch []*entry, encoding string) message {
	mediaType := batchContentType
	if encoding == sinks.Flat {
		mediaType = event.FlatContentType
	}
	body := []byte("[")
	for i, one := range batch {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, one.document...)
	}
	body = append(body, ']')
	sum := sha256.Sum256(body)
	header := http.Header{"Content-Type": []string{mediaType}}
	return message{header: header, body: body, id: hex.EncodeToString(sum[:])}
}

func (b *batcher) add(one *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, one)
}

// remove reports whether an event waited.
func (b *batcher) remove(one *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.pending, one)
	if i < 0 {
		return false
	}
	b.pending = slices.Delete(b.pending, i, i+1)
	return true
}

// take returns a batch of an event and of those that have waited longest, or nil when the event is
// in a batch already.
func (b *batcher) take(first *entry) []*entry {
	if !b.remove(first) {
		return nil
	}
	batch := append([]*entry{first}, b.takeOldest(len(first.document))...)
	for _, other := range batch[1:] {
		other.taken()
	}
	return batch
}

// takeOldest returns the events that fit into a request that has bytes already.
func (b *batcher) takeOldest(bytes int) []*entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for ; n < min(b.most-1, len(b.pending)); n++ {
		if bytes += len(b.pending[n].document); bytes > batchBytes {
			break
		}
	}
	oldest := slices.Clone(b.pending[:n])
	b.pending = slices.Delete(b.pending, 0, n)
	return oldest
}

// learn adapts the number of events in a request to what the endpoint takes.
func (b *batcher) learn(events, status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case status == http.StatusRequestEntityTooLarge:
		b.most = max(1, min(b.most, events/2))
	case status >= 200 && status < 300 && events == b.most:
		b.most = min(b.limit, b.most+1)
	}
}

func (b *batcher) mustBeAlone(object string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.alone[object]
}

// separate has the objects of a batch sent alone until join.
func (b *batcher) separate(batch []*entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range batch {
		b.alone[one.object] = true
	}
}

func (b *batcher) join(object string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.alone, object)
}
