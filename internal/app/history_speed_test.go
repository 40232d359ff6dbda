package app

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	speedEvents = flag.Int("speed.events", 2000, "events of TestArchiveSpeed, and of the history of TestPublishBesideQuestions")
	speedPairs  = flag.Int("speed.pairs", 1, "pairs of rounds of TestPublishBesideQuestions")
	// as many questions as a history answers at a time
	speedAskers = max(runtime.GOMAXPROCS(0)/2, 1)
	speedRound  = flag.Duration("speed.round", 200*time.Millisecond, "length of a round")
)

// speedServer is a NATS server in this process.
func speedServer(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	testkit.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}

func speedSink(t *testing.T, url string) sinks.Sink {
	t.Helper()
	s, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(nats.Config{Servers: []settings.URL{settings.URL(url)}}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "prod"},
	})
	testkit.OK(t, err)
	testkit.OK(t, s.Open(t.Context()))
	t.Cleanup(func() { testkit.OK(t, s.Close()) })
	return s
}

// Pods of 6 KB, of which each is a replica of another one, and which change their status in turns.
const (
	speedPods  = 10_000
	speedPerNS = 500
)

var speedSpec = strings.Repeat(`{"name":"SOME_VARIABLE","value":"its-value-in-all-replicas"},`, 90)

var speedBegan = time.Now().Add(-time.Hour)

// speedEvent is one of all: n is its place.
func speedEvent(n int) *event.Event {
	i, version := n%speedPods, 1000+n
	namespace, name := fmt.Sprint("shop-", i/speedPerNS), fmt.Sprint("web-", i)
	e := &event.Event{
		ID: fmt.Sprintf("%s/%d", name, version), Source: "/clusters/prod", Informer: "all",
		Type: "dev.kubebridge.resource.updated", Op: event.Updated,
		Time:         speedBegan.Add(time.Duration(n) * time.Millisecond),
		Subject:      "api/v1/namespaces/" + namespace + "/pods/" + name,
		PartitionKey: "pods/" + namespace + "/" + name, Sequence: fmt.Sprintf("00000000.%020d", version),
		ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: namespace, Name: name, UID: name,
			ResourceVersion: fmt.Sprint(version),
		},
		OriginAttributes: event.OriginAttributes{Manager: "kubelet", ManagerSubresource: "status"},
		Routing:          event.Routing{Version: "v1", Cluster: "prod"},
	}
	if n >= speedPods {
		e.Previous = fmt.Sprint(version - speedPods)
	}
	e.Data = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d"},`+
		`"spec":{"env":[%s{}]},"status":{"phase":"Running","podIP":"10.0.%d.%d","restartCount":%d}}`,
		name, namespace, name, version, speedSpec, i/250, i%250, n/speedPods)
	return e
}

// TestArchiveSpeed reads a stream into an archive, and says how long that took: make bench-archive.
func TestArchiveSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	url := speedServer(t)
	sink := speedSink(t, url)
	const each = 1000
	for n := 0; n < *speedEvents; n += each {
		var batch []*sinks.Message
		for i := range min(each, *speedEvents-n) {
			batch = append(batch, &sinks.Message{Event: speedEvent(n + i)})
		}
		sink.Publish(t.Context(), batch)
		for _, m := range batch {
			testkit.OK(t, m.Err)
		}
	}
	before, began := usedTime(t), time.Now()
	report, err := streams.Archive(t.Context(), streams.ArchiveOptions{
		SourceOptions: streams.SourceOptions{From: url + "/K8S", Client: "bench", Patience: 10 * time.Second},
		Dir:           t.TempDir(), Once: true, Log: slog.New(slog.DiscardHandler),
	})
	testkit.OK(t, err)
	took, used := time.Since(began), usedTime(t)-before
	if report.Versions != *speedEvents {
		t.Errorf("%d versions of %d events", report.Versions, *speedEvents)
	}
	t.Logf("the server runs in this process\n| events | time (s) | CPU, with the server's (s) | events a second | disk per version (bytes) |\n"+
		"| ---: | ---: | ---: | ---: | ---: |\n| %d | %.1f | %.1f | %.0f | %d |", *speedEvents, took.Seconds(), used.Seconds(),
		float64(*speedEvents)/took.Seconds(), report.DiskBytes/uint64(*speedEvents))
}

// usedTime is the CPU that this process has used.
func usedTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	testkit.OK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestPublishBesideQuestions publishes into JetStream at a fixed pace, with a history that is
// asked all the time and with one that is not, in pairs of rounds: make bench-beside.
func TestPublishBesideQuestions(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	sink := speedSink(t, speedServer(t))
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	defer func() { testkit.OK(t, db.Close()) }()
	var batch []*event.Event
	for n := range *speedEvents {
		if batch = append(batch, speedEvent(n)); len(batch) == 1000 || n == *speedEvents-1 {
			_, err := db.Writer.Append(t.Context(), batch)
			testkit.OK(t, err)
			batch = nil
		}
	}
	h := &ask.Set{}
	defer h.Serve(db.Questions, ask.Place{})()
	table := "| round | questions | p50 (ms) | p99 (ms) | p50, asked (ms) | p99, asked (ms) |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n"
	next := *speedEvents
	for pair := range *speedPairs {
		var took [2][]time.Duration
		var questions int64
		for i := range 2 {
			asked := (i + pair) % 2 // which one comes first changes
			if asked == 1 {
				stop := askAllTheTime(t, h)
				took[asked] = publishFor(t, sink, *speedRound, &next)
				questions = stop()
			} else {
				took[asked] = publishFor(t, sink, *speedRound, &next)
			}
		}
		table += fmt.Sprintf("| %d | %d |", pair+1, questions)
		for _, list := range took {
			slices.Sort(list)
			table += fmt.Sprintf(" %.2f | %.2f |", list[len(list)/2].Seconds()*1000, list[len(list)*99/100].Seconds()*1000)
		}
		table += "\n"
		if questions == 0 {
			t.Error("no question was answered")
		}
	}
	t.Logf("a history of %d events, %d questions at a time\n%s", *speedEvents, speedAskers, table)
}

// publishFor publishes an event every 2 ms, and returns how long each took.
func publishFor(t *testing.T, sink sinks.Sink, length time.Duration, next *int) (took []time.Duration) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(length); time.Now().Before(end); {
		<-ticker.C
		m := &sinks.Message{Event: speedEvent(*next)}
		*next++
		began := time.Now()
		sink.Publish(t.Context(), []*sinks.Message{m})
		testkit.OK(t, m.Err)
		took = append(took, time.Since(began))
	}
	return took
}

// askAllTheTime asks, as often as answers come, until stop is called, which says how often.
func askAllTheTime(t *testing.T, h *ask.Set) (stop func() int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var answered atomic.Int64
	var asking sync.WaitGroup
	since := url.QueryEscape(speedBegan.Format(time.RFC3339))
	for i := range speedAskers {
		asking.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				namespace := fmt.Sprint("shop-", n%(speedPods/speedPerNS))
				name, query := "timeline", "namespace="+namespace+"&since="+since
				switch n % 3 {
				case 0:
					name, query = "state", "namespace="+namespace
				case 1:
					name, query = "versions", fmt.Sprint("object=pods/web-", n*speedPerNS%speedPods, "&namespace=", namespace)
				}
				if err := askOnce(ctx, h, name, query); err != nil && ctx.Err() == nil && *speedEvents >= speedPods {
					t.Errorf("%s: %v", name, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	return func() int64 { cancel(); asking.Wait(); return answered.Load() }
}

func askOnce(ctx context.Context, h *ask.Set, question, query string) error {
	q, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	answer, err := h.Ask(ctx, question, q)
	if lines, is := answer.(iter.Seq2[any, error]); is {
		for _, lineErr := range lines {
			err = lineErr
		}
	}
	return err
}
