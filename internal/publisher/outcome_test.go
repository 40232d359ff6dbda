package publisher_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
)

// What is settled is shown with its outcome.
// Those who look on see every item once, in the order of its object, with what became of it.
func TestOutcome(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		for _, test := range []struct {
			place error
			back  bool // the adder's
			want  publisher.Outcome
		}{
			{nil, false, publisher.DeadLettered},
			{sinks.ErrNoDeadLetter, false, publisher.Lost},
			{nil, true, publisher.Returned},
		} {
			sink, r := newSink(t, order), newRecorder(t)
			sink.OnMessage = refuse("a/2")
			sink.OnDeadLetter = func(*event.Event) error {
				if test.back {
					t.Error("what is the adder's went to the dead letters")
				}
				return test.place
			}
			var mu sync.Mutex
			var shown []string
			p := start(t, sink, publisher.Config{OnSettle: func(settled []*publisher.Item) {
				mu.Lock()
				defer mu.Unlock()
				for _, it := range settled {
					shown = append(shown, it.Message.Event.ID+" "+string(it.Outcome()))
				}
			}})
			items := r.items("a/1", "a/2", "a/3")
			items[1].Return = test.back
			p.add(items)
			p.drain()
			if want := []string{"a/1 acknowledged", "a/2 " + string(test.want), "a/3 acknowledged"}; !slices.Equal(shown, want) {
				t.Errorf("shown %v, want %v", shown, want)
			}
			p.stop()
		}
	})
}
