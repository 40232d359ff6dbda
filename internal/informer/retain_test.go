package informer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// stuck is a Publisher that settles everything at once but the object named "stuck".
type stuck struct {
	mu      sync.Mutex
	held    []*publisher.Item
	settled int
}

// Detach takes nothing back: the listeners of these tests end with their process.
func (s *stuck) Detach(context.Context, publisher.Settler) []*publisher.Item { return nil }

func (s *stuck) Add(_ context.Context, items []*publisher.Item) error {
	for _, it := range items {
		s.mu.Lock()
		hold := it.Message.Event.Name == "stuck"
		if hold {
			s.held = append(s.held, it)
		} else {
			s.settled++
		}
		s.mu.Unlock()
		if !hold {
			settle([]*publisher.Item{it})
		}
	}
	return nil
}

func (s *stuck) TryAdd(items []*publisher.Item) bool {
	return s.Add(context.Background(), items) == nil
}

func (s *stuck) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// One change that does not settle keeps its place at the front of the log, and those behind it as
// empty shells.
func TestStuckChangeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects, size = 200, 256 << 10
		sink := &stuck{}
		r := newRig(t, memory(t), []*outbox{newOutbox()}, func(c *informer.StagesConfig) { c.Listeners[0].Publisher = sink })
		r.add("stuck", "10")
		for i := range objects {
			raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"o%d","namespace":"shop","uid":"u","resourceVersion":"%d"},"spec":%q}`,
				i, 100+i, strings.Repeat("x", size))
			obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
			testkit.OK(t, err)
			testkit.OK(t, r.fifo.Add(t.Context(), obj))
		}
		testkit.Eventually(t, "all but one are settled", func() bool { return sink.count() == objects })
		testkit.OK(t, r.committer.Commit())
		if held := testkit.Heap(); held > objects*size/2 {
			t.Errorf("%d MiB are held after %d MiB were settled", held>>20, objects*size>>20)
		}
		settle(sink.held)
		r.stop()
	})
}
