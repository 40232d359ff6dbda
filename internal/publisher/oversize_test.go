package publisher_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// sizedSink is a scripted sink with a limit of size, and a place for payloads.
type sizedSink struct {
	*testkit.Session
	limit   int
	onClaim func(e *event.Event) error

	mu      sync.Mutex
	got     []event.Event // as they were sent
	claimed []string
}

func newSizedSink(t *testing.T, order sinks.Order, limit int) *sizedSink {
	s := &sizedSink{Session: newSink(t, order), limit: limit}
	s.OnMessage = func(e *event.Event) testkit.Answer {
		if err := s.Fits(e); err != nil {
			t.Errorf("%s was sent with %d bytes", e.ID, len(e.Data))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, *e)
		return testkit.Answer{Stored: true}
	}
	return s
}

func (s *sizedSink) Fits(e *event.Event) error {
	if len(e.Data) > s.limit {
		return &sinks.Error{Class: sinks.Refused, Err: fmt.Errorf("%w: %d of %d", sinks.ErrTooLarge, len(e.Data), s.limit)}
	}
	return nil
}

func (s *sizedSink) Claim(_ context.Context, e *event.Event) (string, error) {
	if s.onClaim != nil {
		if err := s.onClaim(e); err != nil {
			return "", err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = append(s.claimed, e.ID)
	return "store:" + e.ID, nil
}

// form is in what form an event was sent: "trimmed", "claimed store:a/1", "reference {...}"; "" as
// it is.
func (s *sizedSink) form(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.got {
		if e.ID != id {
			continue
		}
		var words []string
		for _, a := range e.Extensions {
			if a.Name == event.AttrOversize || a.Name == event.AttrDataRef {
				words = append(words, a.Value)
			}
		}
		return strings.Join(words, " ")
	}
	return "not sent"
}

// bodies of 100, 200 and 300 bytes that can be trimmed to 60, to none, and to none.
func oversized(r *recorder) []*publisher.Item {
	const head = `{"metadata":{"name":"x","annotations":{"a":"b"`
	pad := func(data string, size int, end string) []byte {
		return []byte(data + strings.Repeat("x", size-len(data)-len(end)) + end)
	}
	items := r.items("a/1", "a/2", "a/3", "b/1", "c/1", "a/4")
	items[1].Message.Event.Data = pad(head+`,"kubectl.kubernetes.io/last-applied-configuration":"`, 400, `"}}}`)
	items[2].Message.Event.Data = pad(head+`}},"spec":"`, 400, `"}`)
	items[3].Message.Event.Data = pad(head+`,"c":"`, 400, `"}}}`)
	return items
}

// An event that is too large is sent in the first form that fits: too large for the broker, or by
// the configuration.
func TestOversize(t *testing.T) {
	t.Run("for the broker", func(t *testing.T) { testOversize(t, false) })
	t.Run("by maxSize", func(t *testing.T) { testOversize(t, true) })
}

func testOversize(t *testing.T, configured bool) {
	t.Helper()
	for name, c := range map[string]struct {
		ways    []publisher.Oversize
		limit   int
		a2      string
		a3      string
		b1      string
		dead    string
		counted float64
	}{
		"by default":              {nil, 160, "trimmed", "reference", "reference", "", 3},
		"claims first":            {[]publisher.Oversize{publisher.Claim}, 160, "claimed store:a/2", "claimed store:a/3", "claimed store:b/1", "", 3},
		"trimmed or claimed":      {[]publisher.Oversize{publisher.Trim, publisher.Claim, publisher.Reference}, 160, "trimmed", "claimed store:a/3", "claimed store:b/1", "", 3},
		"trimmed or dead":         {[]publisher.Oversize{publisher.Trim}, 160, "trimmed", "not sent", "not sent", "a/3 b/1", 1},
		"always dead":             {[]publisher.Oversize{}, 160, "not sent", "not sent", "not sent", "a/2 a/3 b/1", 0},
		"nothing but a reference": {nil, 20, "reference", "reference", "reference", "", 3},
		"all of it fits":          {nil, 1000, "", "", "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachOrder(t, func(t *testing.T, order sinks.Order) {
				sink, r := newSizedSink(t, order, c.limit), newRecorder(t)
				registry := prometheus.NewRegistry()
				config := publisher.Config{Oversize: c.ways, Registerer: registry}
				if configured {
					sink.limit, config.MaxSize = 1<<20, c.limit
				}
				p := start(t, sink, config)
				items := oversized(r)
				var before []*event.Event
				for _, it := range items {
					before = append(before, it.Message.Event)
				}
				p.add(items)
				p.drain()
				if sink.form("a/2") != c.a2 || sink.form("a/3") != c.a3 || sink.form("b/1") != c.b1 || sink.form("a/1") != "" {
					t.Errorf("sent as %q, %q, %q", sink.form("a/2"), sink.form("a/3"), sink.form("b/1"))
				}
				if got := strings.Join(slices.Sorted(slices.Values(sink.DeadLetters())), " "); got != c.dead {
					t.Errorf("dead letters %q, want %q", got, c.dead)
				}
				if _, counted := series(t, registry, "oversized_total"); counted != c.counted {
					t.Errorf("%v are counted, want %v", counted, c.counted)
				}
				want := slices.DeleteFunc(numbered("a", 4), func(id string) bool { return strings.Contains(c.dead, id) })
				wantOrder(t, sink.Session, "a", want...)
				for i, it := range items {
					if it.Message.Event != before[i] {
						t.Errorf("item %d comes back with another event", i)
					}
				}
				if r.count() != len(items) {
					t.Errorf("%d settled", r.count())
				}
			})
		})
	}
}

// maxSize also bounds what is sent to a sink that knows no limit, as an HTTP endpoint.
func TestMaxSizeOfAnySink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := newSink(t, sinks.ByObject), newRecorder(t)
		longest := 0
		sink.OnMessage = func(e *event.Event) testkit.Answer {
			longest = max(longest, len(e.Data))
			return testkit.Answer{Stored: true}
		}
		p := start(t, sink, publisher.Config{MaxSize: 160})
		p.add(oversized(r))
		p.drain()
		if longest == 0 || longest > 160 || len(sink.DeadLetters()) > 0 {
			t.Errorf("a payload of %d bytes was sent, and dead letters %q", longest, sink.DeadLetters())
		}
	})
}

// A claim that fails is tried again, and delays only its lane.
func TestOversizeClaimRetry(t *testing.T) {
	for name, class := range map[string]sinks.Class{"busy": sinks.Retry, "away": sinks.Reconnect} {
		t.Run(name, func(t *testing.T) {
			eachOrder(t, func(t *testing.T, order sinks.Order) {
				sink, r := newSizedSink(t, order, 160), newRecorder(t)
				sink.Bounds = sinks.Limits{Concurrency: 1}
				var attempts atomic.Int32
				sink.onClaim = func(*event.Event) error {
					if attempts.Add(1) < 20 {
						return &sinks.Error{Class: class, Err: fmt.Errorf("no place")}
					}
					return nil
				}
				p := start(t, sink, publisher.Config{Oversize: []publisher.Oversize{publisher.Claim}})
				items := oversized(r)
				p.add(items[4:5])
				p.add(items[:4])
				p.add(items[5:])
				time.Sleep(50 * time.Millisecond)
				synctest.Wait()
				wantOrder(t, sink.Session, "c", "c/1")
				if n := attempts.Load(); n == 0 || n > 10 {
					t.Errorf("%d attempts within 50 ms", n)
				}
				time.Sleep(10 * time.Minute)
				p.drain()
				wantOrder(t, sink.Session, "a", numbered("a", 4)...)
				if sink.form("a/3") != "claimed store:a/3" {
					t.Errorf("a/3 was sent as %q", sink.form("a/3"))
				}
			})
		})
	}
}

// A sink that does not know the limit refuses an event for its size: it is sent in smaller forms,
// one after the other, and is a dead letter when none is taken.
func TestOversizeRefused(t *testing.T) {
	for limit, want := range map[int]string{400: "", 399: "trimmed", 20: "reference", -1: "not sent"} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				knows, r := newSizedSink(t, sinks.ByObject, limit), newRecorder(t)
				knows.OnMessage = func(e *event.Event) testkit.Answer {
					if err := knows.Fits(e); err != nil {
						return testkit.Answer{Err: err}
					}
					knows.mu.Lock()
					defer knows.mu.Unlock()
					knows.got = append(knows.got, *e)
					return testkit.Answer{Stored: true}
				}
				p := start(t, knows.Session, publisher.Config{}) // it does not say so
				items := oversized(r)
				full := items[1].Message.Event
				p.add(items)
				p.drain()
				if form := knows.form("a/2"); form != want {
					t.Errorf("sent as %q", form)
				}
				if isDead := slices.Contains(knows.DeadLetters(), "a/2"); isDead != (limit < 0) {
					t.Errorf("a dead letter: %v", isDead)
				}
				if items[1].Message.Event != full || r.count() != len(items) {
					t.Errorf("%d settled, with the event: %v", r.count(), items[1].Message.Event == full)
				}
			})
		})
	}
}

// A form for large events that the sink does not support is refused.
func TestOversizeUnsupported(t *testing.T) {
	sink := newSink(t, sinks.ByObject)
	for _, way := range []publisher.Oversize{"shrink", publisher.Claim} {
		if _, err := publisher.New(publisher.Config{Sink: sink, Name: "test", Oversize: []publisher.Oversize{way}}); err == nil {
			t.Errorf("%s is accepted", way)
		}
	}
}
