package publisher_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Those who look on see every item once, in the order of its object, with what became of it.
func TestWhatIsSettledIsShownWithItsOutcome(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		for _, test := range []struct {
			place error
			want  publisher.Outcome
		}{{nil, publisher.DeadLettered}, {sinks.ErrNoDeadLetter, publisher.Lost}} {
			sink, r := newSink(t, order), newRecorder(t)
			sink.onMessage = refuse("a/2")
			sink.onDeadLetter = func(*event.Event) error { return test.place }
			var mu sync.Mutex
			var shown []string
			p := start(t, sink, publisher.Config{OnSettle: func(settled []*publisher.Item) {
				mu.Lock()
				defer mu.Unlock()
				for _, it := range settled {
					shown = append(shown, it.Message.Event.ID+" "+string(it.Outcome()))
				}
			}})
			p.add(r.items("a/1", "a/2", "a/3"))
			p.drain()
			if want := []string{"a/1 acknowledged", "a/2 " + string(test.want), "a/3 acknowledged"}; !slices.Equal(shown, want) {
				t.Errorf("shown %v, want %v", shown, want)
			}
			p.stop()
		}
	})
}
