package nats_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// eventsOf is one event of each named object.
func eventsOf(names []string, version int) []*event.Event {
	events := make([]*event.Event, len(names))
	for i, name := range names {
		events[i] = ev(name, version)
	}
	return events
}

func objectNames(caller, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("web-%d-%d", caller, i)
	}
	return names
}

// publishHistory is a publisher with the gate: four callers with objects of their own, each object
// at most once in flight, everything that is answered with an error resent. It counts the failures
// by class.
func publishHistory(
	t *testing.T, sink sinks.Sink, objects, from, to int, failures map[sinks.Class]int,
) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			names := objectNames(caller, objects/4)
			for version := from; version <= to; version++ {
				events := eventsOf(names, version)
				for began := time.Now(); len(events) > 0; {
					var unsent []*event.Event
					for _, m := range call(t, sink, events...) {
						if m.Err != nil {
							unsent = append(unsent, m.Event)
							mu.Lock()
							failures[sinks.Classify(m.Err)]++
							mu.Unlock()
						}
					}
					if events = unsent; len(events) > 0 {
						time.Sleep(20 * time.Millisecond)
					}
					if time.Since(began) > 2*time.Minute {
						t.Errorf("%d messages not stored after 2 minutes", len(events))
						return
					}
				}
			}
		})
	}
	callers.Wait()
}

// wantCompleteHistory checks that each object has every version, once and in order.
func wantCompleteHistory(t *testing.T, js jetstream.JetStream, objects, versions int) {
	t.Helper()
	newest := map[string]int{}
	stored := storedMessages(t, js, "K8S")
	if len(stored) != objects*versions {
		t.Errorf("%d messages are stored, want %d", len(stored), objects*versions)
	}
	for _, m := range stored {
		name := m.Header["ce-name"][0]
		version, _ := strconv.Atoi(m.Header["ce-resourceversion"][0])
		if version != newest[name]+1 {
			t.Fatalf("%s: version %d is stored after version %d", name, version, newest[name])
		}
		newest[name] = version
	}
	for name, version := range newest {
		if version != versions {
			t.Errorf("%s ends with version %d, want %d", name, version, versions)
		}
	}
}

func TestServerKilled(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(ackTimeout(time.Second))
	stop := make(chan struct{})
	var restarts atomic.Int32
	var faults sync.WaitGroup
	faults.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
				ts.restart()
				restarts.Add(1)
			}
		}
	})
	const objects, round = 200, 10
	versions, failures := 0, map[sinks.Class]int{}
	for ; versions < 30 || restarts.Load() < 3 ||
		failures[sinks.Reconnect] == 0; versions += round {
		publishHistory(t, sink, objects, versions+1, versions+round, failures)
	}
	close(stop)
	faults.Wait()
	if failures[sinks.Refused] > 0 {
		t.Errorf("%d restarts, failures %v: messages were refused", restarts.Load(), failures)
	}
	wantCompleteHistory(t, ts.jetStream(), objects, versions)
}

// newTestCluster is three servers that know each other.
func newTestCluster(t testing.TB, change ...func(*server.Options)) [3]*testServer {
	t.Helper()
	var ports [3]int
	for i := range ports {
		ports[i] = testkit.Port(t)
	}
	routes := fmt.Sprintf("nats://127.0.0.1:%d,nats://127.0.0.1:%d,nats://127.0.0.1:%d", ports[0],
		ports[1], ports[2])
	var servers [3]*testServer
	for i := range servers {
		servers[i] = newTestServer(t, append(slices.Clone(change), func(o *server.Options) {
			o.ServerName = fmt.Sprintf("n%d", i)
			o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]}
			o.Routes = server.RoutesFromStr(routes)
			o.LameDuckDuration, o.LameDuckGracePeriod = time.Second, 100*time.Millisecond
		})...)
	}
	await(t, "the cluster has a leader", func() bool {
		return slices.ContainsFunc(servers[:], func(ts *testServer) bool {
			return ts.s.JetStreamIsLeader() && len(ts.s.JetStreamClusterPeers()) == 3
		})
	})
	return servers
}

// A half-dead network takes bytes and delivers none. Neither the write nor the wait may last longer
// than promised.
func TestStalledPeer(t *testing.T) {
	ts := newTestServer(t)
	proxy := newProxy(t, ts.url())
	sink := openOver(t, proxy.url(), ackTimeout(500*time.Millisecond))
	storePatiently(t, sink, ev("a", 1))
	proxy.freeze(true)
	for version := range 6 { // more than the buffers of the sockets hold, so that writes block too
		var events []*event.Event
		for i := range 4 {
			e := ev(fmt.Sprint("b", i), version+1)
			e.Data = make([]byte, 900_000)
			for j := range e.Data {
				e.Data[j] = '1'
			}
			events = append(events, e)
		}
		began := time.Now()
		for _, m := range call(t, sink, events...) {
			if class := sinks.Classify(m.Err); m.Err == nil || class != sinks.Retry &&
				class != sinks.Reconnect {
				t.Errorf("%v", m.Err)
			}
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Publish took %v", took)
		}
	}
	proxy.freeze(false)
	eventually(t, "publish after the network is back", func() error { return call(t, sink, ev("a", 2))[0].Err })
}
