package history_test

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/event"
	store "github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestConformance(t *testing.T) {
	const noLimit = "no event is too large"
	sinktest.Run(t, sinktest.Harness{
		TooLarge: 1 << 20,
		Exempt: map[string]string{
			"stores a message resent after a restart once":              "one sink has a directory open at a time; TestRestart has this case",
			"refuses what is too large and stores the rest of the call": noLimit,
			"a dead letter that is too large arrives without its data":  noLimit,
		},
		Start: func(t *testing.T) *sinktest.Broker {
			dir := t.TempDir()
			var full atomic.Bool
			files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpRemove {
					return syscall.ENOSPC
				}
				return nil
			}))
			return &sinktest.Broker{
				NewSink: func(t *testing.T) sinks.Sink {
					s, err := history.New(history.Options{Config: history.Config{Dir: dir}, FS: files, Patience: 2 * time.Second})
					testkit.OK(t, err)
					return s
				},
				Read:    func(t *testing.T, n int) []sinktest.Received { return readAll(t, dir, n) },
				Break:   func() { full.Store(true) },
				Restore: func() { full.Store(false); time.Sleep(1100 * time.Millisecond) }, // the disk is asked once a second
			}
		},
	})
}

// readAll gives what is stored: what is not about an object first, then each object in its order.
func readAll(t *testing.T, dir string, n int) (all []sinktest.Received) {
	t.Helper()
	db, err := store.Read(store.Options{Dir: dir})
	testkit.OK(t, err)
	defer func() { testkit.OK(t, db.Close()) }()
	add := func(e *event.Event, place string) {
		attributes := map[string]string{}
		e.Each(func(name, value string) { attributes[name] = value })
		r, err := sinktest.ParseBinary(attributes, e.Data)
		testkit.OK(t, err)
		r.Destination = place
		all = append(all, r)
	}
	for _, u := range db.Questions.Resources.Units() {
		for m, err := range db.Questions.Coverage.Notices(u, time.Time{}, time.Time{}) {
			testkit.OK(t, err)
			add(&m.Event, "marks")
		}
		for o, err := range db.Questions.Objects.All(u, "") {
			testkit.OK(t, err)
			for v, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				testkit.OK(t, err)
				add(&v.Event, url.PathEscape(o.Namespace)+"/"+url.PathEscape(o.Name))
			}
		}
	}
	if len(all) < n {
		t.Fatalf("%d events, want %d", len(all), n)
	}
	slices.SortStableFunc(all, func(a, b sinktest.Received) int {
		return cmp.Compare(number(a), number(b))
	})
	return all
}

func number(r sinktest.Received) int {
	n, _ := strconv.Atoi(r.Attributes["resourceversion"]) // 0 for what is about an informer
	return n
}

func TestRestart(t *testing.T) {
	t.Run("a message that is sent again after a restart is stored once", func(t *testing.T) {
		dir := t.TempDir()
		for range 2 {
			s, err := history.New(history.Options{Config: history.Config{Dir: dir}})
			testkit.OK(t, err)
			testkit.OK(t, s.Open(t.Context()))
			for version := range 3 {
				m := &sinks.Message{Event: sinktest.NewEvent("web", version+1, 300)}
				s.Publish(t.Context(), []*sinks.Message{m})
				testkit.OK(t, m.Err)
			}
			testkit.OK(t, s.Close())
		}
		if got := readAll(t, dir, 3); len(got) != 3 {
			t.Errorf("%d events", len(got))
		}
	})
	t.Run("a directory that another sink has open is waited for", func(t *testing.T) {
		dir := t.TempDir()
		first, err := history.New(history.Options{Config: history.Config{Dir: dir}})
		testkit.OK(t, err)
		second, err := history.New(history.Options{Config: history.Config{Dir: dir}})
		testkit.OK(t, err)
		testkit.OK(t, first.Open(t.Context()))
		if err := second.Open(t.Context()); sinks.Classify(err) != sinks.Reconnect {
			t.Errorf("%v", err)
		}
		testkit.OK(t, first.Close())
		testkit.OK(t, second.Open(t.Context()))
		testkit.OK(t, second.Close())
	})
}

// A history outlives a lost state: the informer finds its events there, with the newest epoch.
func TestEarlierRun(t *testing.T) {
	s, err := history.New(history.Options{Config: history.Config{Dir: t.TempDir()}})
	testkit.OK(t, err)
	testkit.OK(t, s.Open(t.Context()))
	t.Cleanup(func() { testkit.OK(t, s.Close()) })
	events := testkit.Events(t, 1, 5, 5)
	about := events[slices.IndexFunc(events, func(e event.Event) bool { return e.AboutInformer() })]
	find := func(of *event.Event) (found []string) {
		t.Helper()
		isFound, err := s.FindEarlierRun(t.Context(), of, func(trace sinks.Trace) bool {
			found = append(found, trace.MessageID+" of "+trace.PartitionKey)
			return len(found) == 1
		})
		if testkit.OK(t, err); isFound != (len(found) > 0) {
			t.Errorf("found %t, of %d", isFound, len(found))
		}
		return found
	}
	if found := find(&about); len(found) > 0 {
		t.Errorf("an empty history has %v", found)
	}
	var newest *event.Event
	batch := make([]*sinks.Message, 0, len(events))
	for i := range events {
		e := &events[i]
		if batch = append(batch, &sinks.Message{Event: e}); !e.AboutInformer() && e.Resource == about.Resource && newest == nil {
			newest = e
			e.ID, e.Sequence = e.ID+"/epoch/2", "00000002"+e.Sequence[8:]
		}
	}
	s.Publish(t.Context(), batch)
	for _, m := range batch {
		testkit.OK(t, m.Err)
	}
	found := find(&about)
	for _, want := range []string{
		about.MessageID() + " of " + about.PartitionKey, newest.MessageID() + " of " + newest.PartitionKey,
	} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is not among %v", want, found)
		}
	}
	other := about
	if other.Informer = "other"; len(find(&other)) > 0 {
		t.Error("another informer has events")
	}
}
