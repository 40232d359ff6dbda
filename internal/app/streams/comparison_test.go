package streams_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// coveredEvents are those of so many objects, with a gap in the midst that a list heals, and the
// version up to which all is there.
func coveredEvents(t *testing.T, objects int) []event.Event {
	t.Helper()
	events := testkit.Events(t, 3, objects, 6)
	about := func(of func(m *event.Maker, newest resource.Version, at time.Time) []event.Event) {
		last := events[len(events)-1]
		for _, typ := range testkit.EventTypes {
			m, err := event.NewMaker(event.MakerConfig{Cluster: "prod", Informer: "workloads", Type: typ})
			testkit.OK(t, err)
			events = append(events, of(m, resource.Version(last.ResourceVersion), record.TimeOf(&last))...)
		}
	}
	about(func(m *event.Maker, newest resource.Version, at time.Time) []event.Event {
		to := resource.Version(fmt.Sprint(1_000_000))
		return []event.Event{
			m.Gap(&resource.Relist{Reason: "expired", From: newest, To: to}, at, event.IDSuffix{}, at.Add(time.Minute)),
			m.Synced(to, event.Listing{}, event.IDSuffix{}, at.Add(2*time.Minute)),
			m.Progress("1000001", event.Unwatched{}, event.IDSuffix{}, at.Add(3*time.Minute)),
		}
	})
	return events
}

// historyOf stores events.
func historyOf(t *testing.T, events []event.Event) *history.DB {
	t.Helper()
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { testkit.OK(t, db.Close()) })
	list := make([]*event.Event, len(events))
	for i := range events {
		list[i] = &events[i]
	}
	_, err = db.Writer.Append(t.Context(), list)
	testkit.OK(t, err)
	return db
}

// publishAll sends events in their order.
func publishAll(t *testing.T, s sinks.Sink, events []event.Event) {
	t.Helper()
	testkit.OK(t, s.Open(t.Context()))
	defer s.Close()
	for i := range events {
		_, err := s.Lane(t.Context(), &events[i])
		testkit.OK(t, err)
		m := &sinks.Message{Event: &events[i]}
		s.Publish(t.Context(), []*sinks.Message{m})
		testkit.OK(t, m.Err)
	}
}

// coveredStores put events where they are read from.
var coveredStores = map[string]func(t *testing.T, events []event.Event) (from string){
	"a file": func(t *testing.T, events []event.Event) string {
		path := filepath.Join(t.TempDir(), "events.json")
		var text []byte
		for i := range events {
			text = append(event.AppendStructured(text, &events[i]), '\n')
		}
		testkit.OK(t, os.WriteFile(path, text, 0o600))
		return path
	},
	"JetStream": func(t *testing.T, events []event.Event) string {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
		testkit.OK(t, err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		if !s.ReadyForConnections(time.Minute) {
			t.Fatal("the server is not ready")
		}
		sink, err := nats.New(nats.Options{
			Config: testkit.WithDefaults(nats.Config{
				Servers: []settings.URL{settings.URL(s.ClientURL())},
				Stream:  nats.Stream{Storage: "memory", Compression: "none"},
			}),
			Common: sinks.Common{Name: "nats", Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "prod"},
		})
		testkit.OK(t, err)
		publishAll(t, sink, events)
		return s.ClientURL() + "/K8S"
	},
	"Kafka": func(t *testing.T, events []event.Event) string {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		testkit.OK(t, err)
		t.Cleanup(c.Close)
		sink, err := kafka.New(kafka.Options{
			Config: testkit.WithDefaults(kafka.Config{CreateTopics: &kafka.CreateTopics{Partitions: 3, ReplicationFactor: 1}}),
			Common: sinks.Common{Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "prod"},
			Connection: kafka.Connection{Brokers: c.ListenAddrs()},
		})
		testkit.OK(t, err)
		var copied []event.Event
		for _, e := range events {
			if !e.AboutInformer() {
				copied = append(copied, e)
				continue
			}
			for part := range 3 {
				copied = append(copied, e.Copy(part))
			}
		}
		publishAll(t, sink, copied)
		return "kafka://" + c.ListenAddrs()[0] + "/k8s.prod.*"
	},
}

// verifyCoverage compares a stream with a history.
func verifyCoverage(t *testing.T, from string, db *history.DB) *verify.Report {
	t.Helper()
	r, err := streams.Verify(t.Context(), streams.VerifyOptions{
		SourceOptions: streams.SourceOptions{From: from, Config: &config.Config{}, Patience: 20 * time.Second}, History: db.Questions,
	})
	testkit.OK(t, err)
	return r
}

// removals take events of an object away, given by their places.
var removals = []struct {
	name string
	of   func(random *rand.Rand, at []int) []int
}{
	{"any", func(random *rand.Rand, at []int) []int { return []int{at[random.IntN(len(at))]} }},
	{"the first", func(_ *rand.Rand, at []int) []int { return at[:1] }},
	{"the last", func(_ *rand.Rand, at []int) []int { return at[len(at)-1:] }},
	{"all", func(_ *rand.Rand, at []int) []int { return at }},
}

// without takes events of 100 objects away, and returns what was taken, by id.
func without(events []event.Event, of func(random *rand.Rand, at []int) []int) (left []event.Event, gone map[string]bool) {
	random := rand.New(rand.NewPCG(7, 7))
	places, keys := map[string][]int{}, []string{}
	for i := range events {
		key := events[i].PartitionKey
		if events[i].AboutInformer() {
			continue
		}
		if places[key] = append(places[key], i); len(places[key]) == 1 {
			keys = append(keys, key)
		}
	}
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	gone = map[string]bool{}
	for _, key := range keys[:100] {
		for _, i := range of(random, places[key]) {
			gone[events[i].ID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return gone[e.ID] }), gone
}

// A stream that lacks what the history has, though the stream reports that all is there: each event
// is named, also where the chain of its object has no break.
func TestVerifyCoverageMissing(t *testing.T) {
	t.Parallel()
	events := coveredEvents(t, 110)
	db := historyOf(t, events)
	for store, put := range coveredStores {
		t.Run(store, func(t *testing.T) {
			if store != "a file" && testing.Short() {
				t.Skip("a file has the same")
			}
			if r := verifyCoverage(t, put(t, events), db); !r.OK || len(r.Notes) > 0 || r.Covered.Resources != 2 || r.Covered.Versions < len(events)*9/10 {
				t.Fatalf("nothing is missing: %v, %v, %+v\n%+v", r.Faults, r.Notes, r.Covered, r.Found[:min(3, len(r.Found))])
			}
			for _, removal := range removals {
				left, gone := without(events, removal.of)
				r := verifyCoverage(t, put(t, left), db)
				found := map[string]bool{}
				for _, f := range r.Found {
					if f.Kind == verify.Missing {
						found[f.ID] = true
					}
				}
				if r.Faults[verify.Missing] != len(gone) || r.Faults[verify.Unrecorded] > 0 {
					t.Errorf("%s of each of 100 objects: %v, want %d", removal.name, r.Faults, len(gone))
				}
				for id := range found {
					if !gone[id] {
						t.Errorf("%s: %s is found, and was not removed", removal.name, id)
					}
				}
			}
		})
	}
}

// A history that lacks what the stream has, though its coverage has no break.
func TestVerifyCoverageUnrecorded(t *testing.T) {
	t.Parallel()
	events := coveredEvents(t, 110)
	from := coveredStores["a file"](t, events)
	left, gone := without(events, func(random *rand.Rand, at []int) []int { return []int{at[1+random.IntN(len(at)-1)]} })
	r := verifyCoverage(t, from, historyOf(t, left))
	for _, f := range r.Found {
		if f.Kind != verify.Unrecorded || !gone[f.ID] || f.At.Lane == "" {
			t.Errorf("found %+v", f)
		}
	}
	if r.Faults[verify.Unrecorded] != 100 || len(r.Faults) != 1 {
		t.Errorf("%v, want 100", r.Faults)
	}
}

// A gap that one of the two reports, and not the other.
func TestVerifyCoverageUndeclared(t *testing.T) {
	t.Parallel()
	events := coveredEvents(t, 10)
	isGap := func(e event.Event) bool { return e.Op == event.Gap }
	left := slices.DeleteFunc(slices.Clone(events), isGap)
	for _, test := range []struct {
		name              string
		streamed, history []event.Event
		want              string
	}{
		{"of the stream", events, left, "gap (expired), versions 1130 to 1000000: the stream reports it, and the history's coverage has no break then"},
		{"of the history", left, events, "gap (expired), versions 1130 to 1000000: the history reports it, and the stream has no break then"},
	} {
		r := verifyCoverage(t, coveredStores["a file"](t, test.streamed), historyOf(t, test.history))
		if r.Faults[verify.Undeclared] != 2 || len(r.Faults) != 1 || r.Found[0].What != test.want {
			t.Errorf("%s: %v, %+v", test.name, r.Faults, r.Found)
		}
	}
	for _, reason := range []string{"forgotten", "dropped"} { // of a sink's own
		own := slices.Clone(events)
		for i := range own {
			if isGap(own[i]) {
				own[i].Data = fmt.Appendf(nil, `{"reason":%q}`, reason)
			}
		}
		if r := verifyCoverage(t, coveredStores["a file"](t, own), historyOf(t, left)); r.Faults[verify.Undeclared] > 0 {
			t.Errorf("%s: %v", reason, r.Faults)
		}
	}
}

// gappedEvents have a gap, which a list heals, or a quarantined object between any five events.
func gappedEvents(t *testing.T) (events []event.Event, gaps []string) {
	t.Helper()
	var makers []*event.Maker
	for _, typ := range testkit.EventTypes {
		m, err := event.NewMaker(event.MakerConfig{Cluster: "prod", Informer: "workloads", Type: typ})
		testkit.OK(t, err)
		makers = append(makers, m)
	}
	const objects = 110
	all := testkit.Events(t, 3, objects, 6)
	begin := all[0].Time
	var at time.Time
	for i, e := range all {
		at = begin.Add(time.Duration(i) * 10 * time.Second)
		e.Time = at
		if n := i - objects - len(makers); n <= 0 || n%5 > 0 || e.AboutInformer() {
			events = append(events, e)
			continue
		}
		m, from, to := makers[len(gaps)%2], resource.Version(all[i-1].ResourceVersion), resource.Version(e.ResourceVersion)
		if len(gaps)%3 == 0 {
			unreadable := &resource.Unreadable{Reason: "json", Key: resource.Key("shop/" + e.Name), Version: to, Digest: fmt.Sprintf("%032d", i)}
			events = append(events, m.Quarantined(unreadable, event.IDSuffix{}, at), e)
			gaps = append(gaps, events[len(events)-2].ID)
			continue
		}
		events = append(events,
			m.Gap(&resource.Relist{Reason: "expired", From: from, To: to}, at.Add(-time.Second), event.IDSuffix{}, at), e,
			m.Synced(to, event.Listing{}, event.IDSuffix{}, at.Add(time.Second)))
		gaps = append(gaps, events[len(events)-3].ID)
	}
	for _, m := range makers {
		events = append(events, m.Progress(resource.Version(all[len(all)-1].ResourceVersion), event.Unwatched{}, event.IDSuffix{}, at.Add(time.Minute)))
	}
	return events, gaps
}

// 100 gaps that only one of the two reports, half of them each, among others that both report.
func TestVerifyCoverageUndeclaredGaps(t *testing.T) {
	t.Parallel()
	events, gaps := gappedEvents(t)
	random := rand.New(rand.NewPCG(8, 8))
	random.Shuffle(len(gaps), func(i, j int) { gaps[i], gaps[j] = gaps[j], gaps[i] })
	lacking := func(ids []string) []event.Event {
		return slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return slices.Contains(ids, e.ID) })
	}
	whole, lacks := historyOf(t, events), historyOf(t, lacking(gaps[50:100]))
	for store, put := range coveredStores {
		t.Run(store, func(t *testing.T) {
			if store != "a file" && testing.Short() {
				t.Skip("a file has the same")
			}
			if r := verifyCoverage(t, put(t, events), whole); !r.OK || len(r.Notes) > 0 || r.Covered.Versions < len(events)/2 {
				t.Errorf("all gaps are in both: %v, %v, %+v\n%+v", r.Faults, r.Notes, r.Covered, r.Found[:min(3, len(r.Found))])
			}
			r := verifyCoverage(t, put(t, lacking(gaps[:50])), lacks)
			found := map[string]bool{}
			for _, f := range r.Found {
				if found[f.ID] = true; f.Kind != verify.Undeclared || !slices.Contains(gaps[:100], f.ID) {
					t.Errorf("found %+v", f)
				}
			}
			if len(found) != 100 || len(r.Found) != 100 {
				t.Errorf("%v of %d gaps, want 100", r.Faults, len(found))
			}
		})
	}
}

// No alarm: a stream of which limits have removed the beginning, or all but an object's newest
// message, one that leaves versions out, and one that is behind.
func TestVerifyCoverageNoAlarm(t *testing.T) {
	t.Parallel()
	events := coveredEvents(t, 30)
	db := historyOf(t, events)
	require := func(t *testing.T, from string, notes int) {
		t.Helper()
		r := verifyCoverage(t, from, db)
		if r.Faults[verify.Missing]+r.Faults[verify.Unrecorded]+r.Faults[verify.Undeclared] > 0 || len(r.Notes) != notes {
			t.Errorf("%v, notes %q", r.Faults, r.Notes)
		}
	}
	for name, limit := range map[string]func(*jetstream.StreamConfig){
		"a stream without its beginning": func(c *jetstream.StreamConfig) { c.MaxMsgs = int64(len(events) / 2) },
		"the newest of each subject":     func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			from := coveredStores["JetStream"](t, events)
			conn, err := natsgo.Connect(from)
			testkit.OK(t, err)
			defer conn.Close()
			js, err := jetstream.New(conn)
			testkit.OK(t, err)
			stream, err := js.Stream(t.Context(), "K8S")
			testkit.OK(t, err)
			cfg := stream.CachedInfo().Config
			limit(&cfg)
			_, err = js.UpdateStream(t.Context(), cfg)
			testkit.OK(t, err)
			notes := 1
			if cfg.MaxMsgsPerSubject > 0 {
				notes = 2
			}
			require(t, from, notes)
		})
	}
	selective := slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return e.Op == event.Updated })
	for i := range selective {
		if selective[i].Op == event.Synced {
			selective[i].Data = []byte(`{"selective":["operations"]}`)
		}
	}
	t.Run("operations", func(t *testing.T) { require(t, coveredStores["a file"](t, selective), 0) })
	t.Run("a stream that is behind", func(t *testing.T) { require(t, coveredStores["a file"](t, events[:len(events)/2]), 0) })
	ahead := historyOf(t, events[:len(events)/2])
	if r := verifyCoverage(t, coveredStores["a file"](t, events), ahead); !r.OK {
		t.Errorf("a history that is behind: %v", r.Faults)
	}
}

// Of a resource that is read in shards each has its own lists and gaps.
func TestVerifyCoverageShards(t *testing.T) {
	t.Parallel()
	var events []event.Event
	for _, e := range coveredEvents(t, 110) {
		if !e.AboutInformer() {
			events = append(events, e)
			continue
		}
		for shard := range 3 {
			if e.Op == event.Gap && shard != 1 {
				continue
			}
			of, what, _ := strings.Cut(e.ID, "/"+string(e.Op)+"/")
			own := e
			own.ID = fmt.Sprintf("%s/shard-%d-of-3/%s/%s", of, shard, e.Op, what)
			events = append(events, own)
		}
	}
	db := historyOf(t, events)
	if r := verifyCoverage(t, coveredStores["a file"](t, events), db); !r.OK || len(r.Notes) > 0 || r.Covered.Versions < len(events)*8/10 {
		t.Errorf("nothing is missing: %v, %v, %+v", r.Faults, r.Notes, r.Covered)
	}
	left, gone := without(events, removals[0].of)
	if r := verifyCoverage(t, coveredStores["a file"](t, left), db); r.Faults[verify.Missing] != len(gone) {
		t.Errorf("%v, want %d", r.Faults, len(gone))
	}
	if r := verifyCoverage(t, coveredStores["a file"](t, events), historyOf(t, left)); r.Faults[verify.Unrecorded] == 0 {
		t.Errorf("%v, want some that the history lacks", r.Faults)
	}
	noGap := slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return e.Op == event.Gap })
	if r := verifyCoverage(t, coveredStores["a file"](t, events), historyOf(t, noGap)); r.Faults[verify.Undeclared] != 2 {
		t.Errorf("%v, want a gap of each resource", r.Faults)
	}
}
