package publisher_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	firstSeed = flag.Uint64("publisher.seed", 0, "seed of the randomised test; 0 for a new one")
	rounds    = flag.Int("publisher.rounds", 3, "rounds of the randomised test")
)

// chaos is a random source that several goroutines may use.
type chaos struct {
	mu sync.Mutex
	*rand.Rand
}

func (c *chaos) one(in int) bool { return c.below(in) == 0 }

func (c *chaos) below(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.IntN(n)
}

// TestRandomFaults is the promise of the package under all faults at once:
// messages that are busy, stored without an answer, refused; calls that are slow or hang; outages;
// lanes that are not known; dead letters that fail.
func TestRandomFaults(t *testing.T) {
	for round := range testkit.Rounds(*rounds, 1) {
		seed := *firstSeed + uint64(round)
		if *firstSeed == 0 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			eachOrder(t, func(t *testing.T, order sinks.Order) { underFaults(t, order, seed) })
		})
	}
}

func underFaults(t *testing.T, order sinks.Order, seed uint64) {
	c := &chaos{Rand: rand.New(rand.NewPCG(seed, uint64(order)))}
	sink := newSink(t, order)
	sink.Bounds = sinks.Limits{Messages: 1 + c.below(40), Bytes: 2000, Concurrency: 1 + c.below(6)}
	refused := &sync.Map{}
	script(sink, c, refused)
	p := start(t, sink, publisher.Config{
		MaxItems:       200,
		MaxBytes:       1 << 20,
		PublishTimeout: 5 * time.Second,
		Retry:          publisher.Retry{Initial: 10 * time.Millisecond, Max: time.Second},
		Log:            slog.New(slog.DiscardHandler),
	})

	const adders, objects, perObject = 4, 12, 80
	var adding sync.WaitGroup
	all := map[string]*recorder{} // by adder
	for a := range adders {
		r := newRecorder(t)
		all[fmt.Sprint("adder", a, "-")] = r
		items := shuffled(c, r, fmt.Sprint("adder", a, "-"), objects, perObject)
		adding.Go(func() {
			for batch := range slices.Chunk(items, 1+c.below(400)) {
				p.add(batch)
				time.Sleep(time.Duration(c.below(100)) * time.Millisecond)
			}
		})
	}
	adding.Wait()
	p.drain()
	p.stop()

	for prefix, r := range all {
		if got := r.count(); got != objects*perObject {
			t.Errorf("%s %d items settled, want %d", prefix, got, objects*perObject)
		}
		for o := range objects {
			object := fmt.Sprint(prefix, o)
			want := slices.DeleteFunc(numbered(object, perObject), func(id string) bool { _, ok := refused.Load(id); return ok })
			if got := storedOf(sink, object); got != strings.Join(want, " ") {
				t.Errorf("%s was stored as\n%s\nwant\n%s", object, got, want)
			}
		}
	}
	if s := p.Status(); s.QueuedItems != 0 || s.QueuedBytes != 0 || s.InFlight != 0 || s.Unrouted != 0 {
		t.Errorf("status at the end: %+v", s)
	}
}

// TestRandomStops ends Run at random moments and continues with a new publisher
// from what was not settled, as a bridge does that starts again from its checkpoint.
func TestRandomStops(t *testing.T) {
	eachOrder(t, func(t *testing.T, order sinks.Order) {
		c := &chaos{Rand: rand.New(rand.NewPCG(rand.Uint64(), 0))}
		sink, r := newSink(t, order), newRecorder(t)
		sink.Bounds = sinks.Limits{Messages: 8, Concurrency: 3}
		script(sink, c, &sync.Map{})
		sink.OnDeadLetter = nil
		const objects, perObject = 10, 100
		items := shuffled(c, r, "o", objects, perObject)
		for _, it := range items {
			it.Message.Event.Data = nil // nothing is refused
		}
		lives := 0
		for ; r.count() < len(items); lives++ {
			p := start(t, sink, publisher.Config{
				MaxItems:       100,
				PublishTimeout: time.Second,
				Retry:          publisher.Retry{Initial: time.Millisecond, Max: 100 * time.Millisecond},
				Log:            slog.New(slog.DiscardHandler),
			})
			left := slices.DeleteFunc(slices.Clone(items), func(it *publisher.Item) bool { return r.has(it) })
			added := make(chan error, 1)
			go func() { added <- p.Add(t.Context(), left) }()
			time.Sleep(time.Duration(c.below(50)) * time.Millisecond)
			p.stop()
			<-added
		}
		if lives < 3 {
			t.Errorf("all was settled after %d lives: the test stopped nothing", lives)
		}
		for o := range objects {
			object := fmt.Sprint("o", o)
			want := strings.Join(numbered(object, perObject), " ")
			if got := strings.Join(firsts(sink.Stored(object)), " "); got != want {
				t.Errorf("%s was stored as\n%s\nwant\n%s", object, got, want)
			}
		}
	})
}

// firsts is the ids without their repetitions.
func firsts(ids []string) (first []string) {
	seen := map[string]bool{}
	for _, id := range ids {
		if !seen[id] {
			first = append(first, id)
		}
		seen[id] = true
	}
	return first
}

func (r *recorder) has(it *publisher.Item) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled[it]
}

// shuffled is the items of some objects, mixed, each object's own in order.
func shuffled(c *chaos, r *recorder, prefix string, objects, perObject int) []*publisher.Item {
	next := make([]int, objects)
	var ids []string
	for len(ids) < objects*perObject {
		o := c.below(objects)
		if next[o] < perObject {
			next[o]++
			ids = append(ids, fmt.Sprintf("%s%d/%d", prefix, o, next[o]))
		}
	}
	items := r.items(ids...)
	for _, it := range items {
		it.Message.Event.Data = make([]byte, c.below(300))
	}
	return items
}

// script makes a sink fail in every way it can. What it refuses it refuses always, and notes.
func script(sink *testkit.Session, c *chaos, refused *sync.Map) {
	var mu sync.Mutex
	var back time.Time // the end of the current outage
	away := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if time.Now().After(back) && c.one(400) {
			back = time.Now().Add(time.Duration(c.below(3000)) * time.Millisecond)
		}
		return time.Now().Before(back)
	}
	sink.OnPublish = func(ctx context.Context, _ []*sinks.Message) {
		switch {
		case c.one(300):
			<-ctx.Done()
		case c.one(3):
			time.Sleep(time.Duration(c.below(20)) * time.Millisecond)
		}
	}
	sink.OnMessage = func(e *event.Event) testkit.Answer {
		if len(e.Data)%40 == 7 {
			refused.Store(e.ID, true)
			return testkit.Answer{Err: testkit.ErrTooLarge}
		}
		switch {
		case away():
			return testkit.Answer{Err: testkit.ErrUnreachable, Stored: c.one(2)}
		case c.one(15):
			return testkit.Answer{Err: testkit.ErrBusy, Stored: c.one(2)}
		case c.one(500):
			return testkit.Answer{Err: context.Canceled} // a sink's own context
		}
		return testkit.Answer{}
	}
	sink.OnLane = func(*event.Event) error {
		switch {
		case c.one(200):
			return testkit.ErrBusy
		case c.one(500):
			return testkit.ErrUnreachable
		}
		return nil
	}
	sink.OnDeadLetter = func(*event.Event) error {
		switch {
		case away():
			return testkit.ErrUnreachable
		case c.one(4):
			return testkit.ErrBusy
		case c.one(4):
			return sinks.ErrNoDeadLetter
		}
		return nil
	}
}
