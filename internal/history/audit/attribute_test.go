package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/testkit"
)

// attributing is a history with changes, and attributors of it, one after the other, for one sink.
type attributing struct {
	*testing.T
	db       *history.DB
	registry *prometheus.Registry
	end      func()
	pace     time.Duration

	mu      sync.Mutex
	refuses func(*event.Event) bool // guarded by mu
	sent    []string                // guarded by mu: id, user and reason
	settled int                     // guarded by mu
}

func newAttributing(t *testing.T) *attributing {
	db, err := history.Open(history.Options{Dir: t.TempDir(), KeepsUnsent: true})
	testkit.OK(t, err)
	s := &attributing{T: t, db: db, pace: 300, end: func() {}, refuses: func(*event.Event) bool { return false }}
	t.Cleanup(func() {
		s.end()
		_ = db.Close()
	})
	return s
}

func (s *attributing) start(sinks ...string) {
	s.end()
	s.registry = prometheus.NewPedanticRegistry()
	a := &Attributor{
		Sinks: sinks, Cluster: "prod", Unsent: s.db.Unsent, Questions: s.db.Questions, FollowUp: s.followUp,
		Metrics: NewAttributorMetrics(metric.With(s.registry)), Log: slog.New(slog.DiscardHandler), pace: s.pace,
	}
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	s.end = func() { cancel(); running.Wait() }
}

func (s *attributing) followUp(_ context.Context, sink string, events []*event.Event) ([]func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sink == "down" {
		return nil, errors.New("it is unavailable")
	}
	settled := make([]func(), len(events))
	for i, e := range events {
		if s.refuses(e) {
			continue
		}
		var data struct{ Change, Op, User, Unknown string }
		testkit.OK(s.T, json.Unmarshal(e.Data, &data))
		if e.ID != data.Change+"/actor" || e.Type != event.TypeAttributed || data.Op == "" || e.Cluster != "prod" {
			s.Errorf("%+v %s", e, e.Data)
		}
		s.sent = append(s.sent, fmt.Sprint(data.Change, " ", data.User, data.Unknown))
		settled[i] = func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.settled++
		}
	}
	return settled, nil
}

func (s *attributing) set(refuses func(*event.Event) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = refuses
}

// store stores versions of the object name.
func (s *attributing) store(name string, numbers ...int) {
	s.Helper()
	var events []*event.Event
	for i, number := range numbers {
		op := event.Updated
		if i == 0 {
			op = event.Added
		}
		events = append(events, changeOf(name, op, number))
	}
	s.append(events...)
}

func (s *attributing) append(events ...*event.Event) {
	s.Helper()
	_, err := s.db.Writer.Append(s.Context(), events)
	testkit.OK(s.T, err)
}

func changeOf(name string, op event.Op, number int) *event.Event {
	e := &event.Event{
		ID: fmt.Sprint(name, "/", number), Source: "/clusters/prod", Type: "dev.kubebridge.resource." + string(op), Op: op,
		Time: noon.Add(time.Duration(number-5) * time.Minute), Informer: "all", Sequence: fmt.Sprintf("00000000.%020d", number),
		ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Resource: "pods", Kind: "Pod", Namespace: "shop", Name: name, UID: name,
			ResourceVersion: fmt.Sprint(number), Previous: fmt.Sprint(number - 1),
		},
		OriginAttributes: event.OriginAttributes{TimeSource: event.TimeManagedFields},
		Data:             fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":%q},"spec":{"n":%d}}`, name, number),
	}
	if op == event.Added {
		e.Previous = ""
	}
	return e
}

// record stores requests, and that the log is read until a time.
func (s *attributing) record(until time.Time, lines ...string) {
	s.Helper()
	r := &Recorder{
		Config: Config{Groups: true}, Cluster: "prod", Store: s.db.Requests, Log: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(metric.With(prometheus.NewPedanticRegistry())),
	}
	from := &source{Recorder: r, name: "a", state: state{Since: noon.Add(-time.Hour), Until: until}}
	b := &batch{}
	for _, text := range lines {
		testkit.OK(s.T, from.add(b, []byte(strings.ReplaceAll(text, `"web"`, `"a"`)), place{}))
	}
	testkit.OK(s.T, from.store(s.Context(), b))
}

func (s *attributing) waitFor(want ...string) {
	s.Helper()
	got := func() []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.sent)
	}
	testkit.Eventually(s.T, fmt.Sprint(len(want), " events"), func() bool { return len(got()) >= len(want) })
	if sent := got(); !slices.Equal(sent, want) {
		s.Fatalf("sent is\n%s\nwant\n%s", strings.Join(sent, "\n"), strings.Join(want, "\n"))
	}
	testkit.Eventually(s.T, "it is settled when that is stored", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.settled == len(want)
	})
}

// Each change has one event in the order of the changes, whatever is refused meanwhile and however
// often it begins again.
func TestAttributor(t *testing.T) {
	t.Parallel()
	s := newAttributing(t)
	s.store("a", 5, 6, 7)
	s.store("b", 9)
	s.record(noon.Add(time.Hour), line("ann", "create", 0, 201, "uid:a Ca"), line("bob", "patch", 1, 200, "uid:a U5"))
	s.set(func(e *event.Event) bool { return e.ID == "a/6/actor" })
	s.start("stream")
	testkit.Eventually(t, "all but one", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sent) >= 3
	})
	s.set(func(*event.Event) bool { return false })
	all := []string{"a/5 ann", "a/7 " + reasonNone, "b/9 " + reasonNone, "a/6 bob"}
	s.waitFor(all...)
	s.start("stream")
	s.store("b", 9) // a repeat
	s.store("c", 10)
	s.waitFor(append(all, "c/10 "+reasonNone)...)
	if n := testkit.Metrics(t, s.registry)["bridge_attributed_total unknown"]; n != 1 {
		t.Errorf("%v are counted", n)
	}
	left, err := s.db.Unsent.Next("another", 10)
	testkit.OK(t, err)
	if len(left) > 0 {
		t.Errorf("%v are kept", left)
	}
}

// What the log does not have yet is waited for, but not forever.
func TestAttributorWaits(t *testing.T) {
	t.Parallel()
	s := newAttributing(t)
	s.record(noon.Add(-time.Minute))
	s.store("a", 5)
	s.start("stream")
	time.Sleep(200 * time.Millisecond) // it is due after a sixth of that
	s.record(noon.Add(time.Hour), line("ann", "create", 0, 201, "uid:a Ca"))
	s.waitFor("a/5 ann")
	s.record(noon.Add(-time.Minute))
	s.store("b", 9)
	s.waitFor("a/5 ann", "b/9 "+lacksYet) // after 15 minutes, a three-hundredth of which are 3 s
}

// A sink that takes nothing holds up no other, and what another one knows is kept for it.
func TestAttributorOfSinks(t *testing.T) {
	t.Parallel()
	s := newAttributing(t)
	s.record(noon.Add(time.Hour))
	s.store("a", 5)
	s.start("down", "stream")
	s.waitFor("a/5 " + reasonNone)
	left, err := s.db.Unsent.Next("down", 10)
	testkit.OK(t, err)
	if len(left) != 1 {
		t.Error(left)
	}
}

// BenchmarkAttribute is what the event about the user of a change costs, beside what sends it: 100
// objects that change each minute.
func BenchmarkAttribute(b *testing.B) {
	const objects, versions = 100, 50
	dir := b.TempDir()
	db, err := history.Open(history.Options{Dir: dir, KeepsUnsent: true})
	testkit.OK(b, err)
	defer db.Close()
	r := &Recorder{
		Config: Config{Groups: true}, Cluster: "prod", Store: db.Requests, Log: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(metric.With(prometheus.NewPedanticRegistry())),
	}
	from, requests := &source{Recorder: r, name: "a", state: state{Since: noon.Add(-time.Hour), Until: noon.AddDate(1, 0, 0)}}, &batch{}
	for v := range versions {
		var events []*event.Event
		for o := range objects {
			name, number := fmt.Sprint("pod-", o), 1000*(v+1)+o
			e := &event.Event{
				ID: fmt.Sprint(name, "/", number), Source: "/clusters/prod", Type: "dev.kubebridge.resource.updated", Op: event.Updated,
				Time: noon.Add(time.Duration(v) * time.Minute), Informer: "all", Sequence: fmt.Sprintf("00000000.%020d", number),
				ObjectAttributes: event.ObjectAttributes{
					APIVersion: "v1", Resource: "pods", Kind: "Pod", Namespace: "shop", Name: name, UID: name,
					ResourceVersion: fmt.Sprint(number), Previous: fmt.Sprint(number - 1000),
				},
				OriginAttributes: event.OriginAttributes{TimeSource: event.TimeManagedFields},
				Data:             fmt.Appendf(nil, `{"kind":"Pod","metadata":{"name":%q},"spec":{"n":%d},"x":%q}`, name, number, strings.Repeat("x", 5000)),
			}
			events = append(events, e)
			text := line("ann", "patch", v, 200, fmt.Sprint("uid:", name, " U", number-1000))
			testkit.OK(b, from.add(requests, []byte(strings.ReplaceAll(text, `"web"`, `"`+name+`"`)), place{}))
		}
		_, err := db.Writer.Append(b.Context(), events)
		testkit.OK(b, err)
		testkit.OK(b, from.store(b.Context(), requests))
	}
	s := &attribution{
		Attributor: &Attributor{
			Sinks: []string{"stream"}, Cluster: "prod", Unsent: db.Unsent, Questions: db.Questions, pace: 1 << 20,
			Metrics: NewAttributorMetrics(metric.With(prometheus.NewPedanticRegistry())), Log: slog.New(slog.DiscardHandler),
			FollowUp: func(_ context.Context, _ string, events []*event.Event) ([]func(), error) {
				settled := make([]func(), len(events))
				for i := range settled {
					settled[i] = func() {}
				}
				return settled, nil
			},
		},
		sink: "stream", notices: map[*record.Unit]notices{}, settled: map[uint64]func(){},
	}
	before := cpu(b)
	for b.Loop() {
		testkit.OK(b, db.Unsent.Sent(b.Context(), "stream", 0, []string{"stream"}))
		for isFull := true; isFull; {
			_, isFull, err = s.pass(b.Context())
			testkit.OK(b, err)
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N*objects*versions), "µs-cpu/version")
}

// What a sink takes nothing of for a day is dropped, and counted; what is new is not.
func TestAttributorDrops(t *testing.T) {
	t.Parallel()
	s := newAttributing(t)
	s.pace = 1 << 18 // a day is a third of a second
	s.record(noon.Add(time.Hour))
	s.store("a", 5)
	s.set(func(e *event.Event) bool { return e.ID == "a/5/actor" })
	s.start("stream")
	testkit.Eventually(t, "it is dropped", func() bool {
		return testkit.Metrics(t, s.registry)["bridge_attributed_total dropped"] == 1
	})
	s.store("b", 9)
	s.waitFor("b/9 " + reasonNone)
}

// The backlog of a sink is within the bounds of the history: what that forgets is dropped.
func TestAttributorForgets(t *testing.T) {
	t.Parallel()
	s := newAttributing(t)
	s.record(noon.Add(time.Hour))
	s.store("a", 5)
	s.set(func(e *event.Event) bool { return e.ID == "a/5/actor" })
	s.start("stream")
	s.store("b", 9)
	testkit.Eventually(t, "the other one is sent", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.sent) == 1
	})
	testkit.OK(t, s.db.Maintenance.Retain(t.Context(), history.Retention{Age: time.Minute}, time.Now().Add(time.Hour)))
	testkit.Eventually(t, "it is dropped", func() bool {
		return testkit.Metrics(t, s.registry)["bridge_attributed_total dropped"] == 1
	})
	s.store("c", 10)
	s.waitFor("b/9 "+reasonNone, "c/10 "+reasonNone)
}

// A version that became known late has a later time than the one behind it.
func TestAttributorOfLateChange(t *testing.T) {
	t.Parallel()
	s := newAttributing(t)
	s.record(noon.Add(time.Hour), line("bob", "patch", 1, 200, "uid:a U5"))
	s.store("a", 5)
	s.start("stream")
	s.waitFor("a/5 " + reasonNone)
	late, listed := changeOf("a", event.Updated, 6), changeOf("a", event.Updated, 7)
	late.Time, late.NotBefore, late.TimeSource = noon.Add(30*time.Minute), noon.Add(time.Minute), event.TimeObserved
	listed.Initial = true // it has no user, so it is not looked for
	s.append(late, listed)
	s.waitFor("a/5 "+reasonNone, "a/6 bob")
}

// A request may have seen versions that are from before those that are asked about.
func TestAttributorOfEarlierTries(t *testing.T) {
	t.Parallel()
	s := newAttributing(t)
	s.record(noon.Add(time.Hour),
		line("ann", "patch", 3, 200, "uid:a U20", answered("20")), line("bob", "delete", 3, 200, "uid:a D8 D13"))
	var changes []*event.Event
	for i, number := range []int{8, 13, 20, 30} {
		e := changeOf("a", event.Updated, number)
		e.Time = noon.Add(3*time.Minute - time.Duration(3-i)*10*time.Second)
		if i > 0 {
			e.Previous = changes[i-1].ResourceVersion
		}
		changes = append(changes, e)
	}
	changes[0].Op, changes[0].Type, changes[0].Previous = event.Added, "dev.kubebridge.resource.added", ""
	changes[2].Data = []byte(`{"metadata":{"deletionTimestamp":"2026-11-29T12:01:00Z","finalizers":["a"]}}`)
	changes[3].Op, changes[3].Type = event.Deleted, "dev.kubebridge.resource.deleted"
	s.append(changes[:3]...)
	s.start("stream")
	before := []string{"a/8 " + reasonNone, "a/13 " + reasonNone, "a/20 " + reasonIncomplete}
	s.waitFor(before...)
	s.append(changes[3])
	s.waitFor(append(before, "a/30 "+reasonSeveral)...)
}
