package http_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	nethttp "net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// unsteady is a receiver that takes an event, and then answers, or fails in one of many ways. It
// also fails before it takes one.
type unsteady struct {
	t *testing.T

	mu      sync.Mutex
	random  *rand.Rand      // guarded by mu
	newest  map[string]int  // guarded by mu: the version that came last for the first time, by object
	ids     map[string]bool // guarded by mu
	repeats int             // guarded by mu
}

func (u *unsteady) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != nethttp.MethodPost {
		return
	}
	before, after := u.fault(), u.fault()
	if before(w, r) {
		return
	}
	all, err := parseAll(r.Header, body)
	if err != nil {
		u.t.Error(err)
		return
	}
	for _, got := range all {
		u.take(got)
	}
	after(w, r)
}

// fault gives nothing, or a way to fail that reports whether the request is over.
func (u *unsteady) fault() func(nethttp.ResponseWriter, *nethttp.Request) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	wait := time.Duration(u.random.IntN(30)) * time.Second
	status := []int{500, 502, 503, 429, 404, 401, 307}[u.random.IntN(7)]
	switch u.random.IntN(8) {
	case 0: // a status
		return func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
			if status == 429 || status == 503 {
				w.Header().Set("Retry-After", fmt.Sprint(wait.Seconds()))
			}
			w.WriteHeader(status)
			return true
		}
	case 1: // a handler that dies
		return func(nethttp.ResponseWriter, *nethttp.Request) bool { panic(nethttp.ErrAbortHandler) }
	case 2: // late, also after the sink has given up and has sent the event again
		return func(nethttp.ResponseWriter, *nethttp.Request) bool { time.Sleep(wait); return false }
	case 3: // no answer at all
		return func(_ nethttp.ResponseWriter, r *nethttp.Request) bool { <-r.Context().Done(); return true }
	}
	return func(nethttp.ResponseWriter, *nethttp.Request) bool { return false }
}

// take checks that an event that comes for the first time is the next one of its object.
func (u *unsteady) take(r sinktest.Received) {
	u.mu.Lock()
	defer u.mu.Unlock()
	id, name := r.Attributes["id"], r.Attributes["name"]
	version, err := strconv.Atoi(r.Attributes["resourceversion"])
	if err != nil {
		u.t.Error(err)
	}
	if u.ids[id] {
		u.repeats++
		if version > u.newest[name] {
			u.t.Errorf("version %d of %s has the id of another one: %s", version, name, id)
		}
		return
	}
	u.ids[id] = true
	if want := u.newest[name] + 1; version != want {
		u.t.Errorf("version %d of %s came for the first time, want %d", version, name, want)
	}
	u.newest[name] = version
}

// settled counts what the publisher gives back.
type settled struct {
	t     *testing.T
	mu    sync.Mutex
	count int // guarded by mu
}

func (s *settled) Settle(items []*publisher.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range items {
		if it.Outcome() != publisher.Acknowledged {
			s.t.Errorf("%s: %s", it.Message.Event.ID, it.Outcome())
		}
	}
	s.count += len(items)
}

// serveAndKill serves for a while, is unavailable for a while, and so on, until ctx ends. It begins
// by being unavailable.
func (n *network) serveAndKill(ctx context.Context, host string, h nethttp.Handler) {
	for ctx.Err() == nil {
		time.Sleep(15 * time.Second)
		kill := n.serve(host, h.ServeHTTP)
		time.Sleep(40 * time.Second)
		kill()
	}
}

// TestFaults posts to a receiver that fails at random, hangs, answers late, and is killed: nothing
// is lost, nothing is reordered within an object, and repeats have equal ids.
func TestFaults(t *testing.T) {
	const objects, versions = 20, 25
	for seed := range uint64(6) {
		batch := int(seed%2) * 8
		t.Run(fmt.Sprintf("seed %d, batches of %d", seed, batch), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				u := &unsteady{
					t: t, random: rand.New(rand.NewPCG(seed, 0)), newest: map[string]int{}, ids: map[string]bool{},
				}
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { n.serveAndKill(ctx, "a.test:80", u) })
				sink, err := http.New(http.Options{
					Config: testkit.WithDefaults(http.Config{URL: endpoint, Batch: batch}),
					Common: sinks.Common{Encoding: []string{sinks.Binary, sinks.Structured}[seed%2]}, Dial: n.dial,
				})
				testkit.OK(t, err)
				p, err := publisher.New(publisher.Config{Sink: sink, Name: "http"})
				testkit.OK(t, err)
				running.Go(func() { testkit.OK(t, p.Run(ctx)) })

				var items []*publisher.Item
				s := &settled{t: t}
				for version := 1; version <= versions; version++ {
					for object := range objects {
						e := sinktest.NewEvent(fmt.Sprint("web-", object), version, 300)
						items = append(items, &publisher.Item{Message: sinks.Message{Event: e}, Settler: s})
					}
				}
				testkit.OK(t, p.Add(t.Context(), items))
				testkit.OK(t, p.Drain(t.Context()))
				cancel()
				running.Wait()
				time.Sleep(time.Minute) // handlers that are late end
				u.mu.Lock()
				defer u.mu.Unlock()
				if s.count != objects*versions || len(u.ids) != objects*versions {
					t.Errorf("%d settled, %d received, of %d", s.count, len(u.ids), objects*versions)
				}
				if u.repeats == 0 {
					t.Error("no event was repeated: the faults are none")
				}
				t.Logf("%d events, %d repeats", len(u.ids), u.repeats)
			})
		})
	}
}

// latencies is a Settler that notes which items took how long.
type latencies struct {
	mu      sync.Mutex
	longest time.Duration // guarded by mu
	count   int           // guarded by mu
}

func (l *latencies) Settle(items []*publisher.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		l.longest = max(l.longest, time.Since(it.Message.Event.Observed))
		l.count++
	}
}

// A receiver that hangs for some objects, more than the sink posts at once, does not delay others.
func TestHangingObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		n.serve("a.test:80", func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if strings.HasPrefix(r.Header.Get("ce-name"), "hangs") {
				hang(w, r)
				return
			}
			time.Sleep(50 * time.Millisecond)
		})
		p, err := publisher.New(publisher.Config{Sink: n.sink(http.Options{}), Name: "http"})
		testkit.OK(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { testkit.OK(t, p.Run(ctx)) })
		l := &latencies{}
		add := func(name string, version int) {
			e := sinktest.NewEvent(name, version, 300)
			e.Observed = time.Now()
			testkit.OK(t, p.Add(t.Context(), []*publisher.Item{{Message: sinks.Message{Event: e}, Settler: l}}))
		}
		for i := range 18 {
			add(fmt.Sprint("hangs-", i), 1)
		}
		const events = 300
		for i := range events {
			add("web", i+1)
			time.Sleep(time.Second)
		}
		cancel()
		running.Wait()
		time.Sleep(time.Minute) // handlers that are late end
		if l.count != events || l.longest > 2*time.Second {
			t.Errorf("%d of %d events were settled, the slowest after %v", l.count, events, l.longest)
		}
		t.Logf("the slowest took %v", l.longest)
	})
}

// A receiver that is slow for all events is not asked more at once than the sink may.
func TestSlowEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		var mu sync.Mutex
		began, at, most := time.Now(), 0, 0
		n.serve("a.test:80", func(_ nethttp.ResponseWriter, r *nethttp.Request) {
			mu.Lock()
			if at++; time.Since(began) > time.Minute { // answers have shown how long they take
				most = max(most, at)
			}
			mu.Unlock()
			time.Sleep(2 * time.Second)
			mu.Lock()
			at--
			mu.Unlock()
		})
		p, err := publisher.New(publisher.Config{Sink: n.sink(http.Options{}), Name: "http"})
		testkit.OK(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { testkit.OK(t, p.Run(ctx)) })
		var items []*publisher.Item
		l := &latencies{}
		for i := range 1000 {
			items = append(items, &publisher.Item{
				Message: sinks.Message{Event: sinktest.NewEvent(fmt.Sprint("web-", i), 1, 300)}, Settler: l,
			})
		}
		testkit.OK(t, p.Add(t.Context(), items))
		testkit.OK(t, p.Drain(t.Context()))
		if most != 16 {
			t.Errorf("%d events were posted at once, want 16", most)
		}
		cancel()
		running.Wait()
	})
}

// outcomes is a Settler that passes on how each item was settled, with the reason of a refusal.
type outcomes chan string

func (o outcomes) Settle(items []*publisher.Item) {
	for _, it := range items {
		e := it.Message.Event
		o <- fmt.Sprint(e.Name, e.ResourceVersion, " ", it.Outcome(), " ", it.Refused())
	}
}

// A receiver that fails for one event, or does not answer, delays no other object, and the object
// itself until the event is given up.
func TestGiveUp(t *testing.T) {
	for name, c := range map[string]struct {
		poison nethttp.HandlerFunc
		reason string
	}{
		"it answers 500":        {answer(500), "http://a.test:80/in answered 500 Internal Server Error"},
		"it answers 404":        {answer(404), "http://a.test:80/in answered 404 Not Found"},
		"it does not answer":    {hang, "http://a.test:80/in: no answer within 10s"},
		"it closes connections": {func(nethttp.ResponseWriter, *nethttp.Request) { panic(nethttp.ErrAbortHandler) }, "http://a.test:80/in: EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				var letters []string
				n.serve("a.test:80", func(w nethttp.ResponseWriter, r *nethttp.Request) {
					switch id := r.Header.Get("ce-name") + r.Header.Get("ce-resourceversion"); {
					case r.URL.Path == "/dead":
						letters = append(letters, id+" "+decoded(r.Header.Get("ce-deadletterreason")))
					case id == "web1":
						c.poison(w, r)
					default:
					}
				})
				p, err := publisher.New(publisher.Config{
					Sink: n.sink(http.Options{Config: http.Config{DeadLetterURL: "http://a.test:80/dead"}}), Name: "http",
					Retry: publisher.Retry{MaxAttempts: 3},
				})
				testkit.OK(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { testkit.OK(t, p.Run(ctx)) })
				o := make(outcomes)
				var items []*publisher.Item
				for _, e := range []*event.Event{
					sinktest.NewEvent("web", 1, 300), sinktest.NewEvent("web", 2, 300), sinktest.NewEvent("other", 1, 300),
				} {
					items = append(items, &publisher.Item{Message: sinks.Message{Event: e}, Settler: o})
				}
				testkit.OK(t, p.Add(t.Context(), items))
				began := time.Now()
				if got := <-o; got != "other1 acknowledged <nil>" || time.Since(began) > time.Second {
					t.Errorf("first, after %v: %s", time.Since(began), got)
				}
				if got := <-o; !strings.HasPrefix(got, "web1 dead-letter given up after 3 attempts in ") || !strings.HasSuffix(got, c.reason) {
					t.Errorf("then %s", got)
				}
				if got := <-o; got != "web2 acknowledged <nil>" {
					t.Errorf("then %s", got)
				}
				if len(letters) != 1 || !strings.HasPrefix(letters[0], "web1 ") || !strings.HasSuffix(letters[0], c.reason) {
					t.Errorf("dead letters %q", letters)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

// While nothing listens where dead letters go, only the object of a refused event waits, and its
// letter is posted when somebody listens again.
func TestDeadLettersUnreachable(t *testing.T) {
	t.Parallel()
	dead := &receiver{t: t, address: testkit.Address(t)}
	m := &moody{receiver: &receiver{t: t, address: testkit.Address(t)}}
	m.receiver.handler = m
	m.start()
	t.Cleanup(func() { m.stop() })
	refuses := func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
		if r.Header.Get("ce-name") == "poison" {
			w.WriteHeader(nethttp.StatusBadRequest)
			return true
		}
		return false
	}
	m.answer.Store(&refuses)
	e := &sinktest.Edge{TB: t}
	e.Start(newSink(t, http.Options{Config: http.Config{
		URL: settings.URL("http://" + m.address + "/events"), DeadLetterURL: settings.URL("http://" + dead.address + "/dead"),
	}}), 5*time.Second)
	e.Add("poison", 1, 300)
	e.Logs("connection refused")
	for i := 1; i <= 20; i++ {
		e.Add("other", i, 300)
		e.Want(10*time.Second, fmt.Sprint("other", i))
		time.Sleep(50 * time.Millisecond) // the letter is tried again
		if s := e.Publisher.Status(); !s.Connected {
			t.Fatalf("%+v", s)
		}
	}
	dead.start()
	t.Cleanup(func() { dead.stop() })
	testkit.Eventually(t, "the letter", func() bool { return e.Publisher.Status().DeadLetters == 1 })
}
