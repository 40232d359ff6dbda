package nats_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// clusterMessages is how many messages a test of a cluster sends at least; `make test-jetstream`
// asks for more.
var clusterMessages = flag.Int("jetstream.messages", 20_000, "messages that the tests of a "+
	"JetStream cluster send")

// minFaults is how many faults must happen while messages are sent, or a test has tested nothing.
const minFaults = 2

func TestClusterFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for name, fault := range map[string]func(*faultyCluster){
		"the leader steps down":              (*faultyCluster).stepDown,
		"a server is killed and comes back":  (*faultyCluster).kill,
		"a server leaves in lame duck mode":  (*faultyCluster).lameDuck,
		"the leader's server is killed":      (*faultyCluster).killLeader,
		"the sink's own connection is ended": (*faultyCluster).disconnect,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newFaultyCluster(t)
			sent := c.sendUnder(fault, *clusterMessages/5)
			stored := c.read()
			t.Logf("%d messages under %d faults in %v (%.0f/s): lost %d, repeated %d, reordered "+
				"%d; %d retries, %d removed by the stream",
				sent.messages, sent.faults, sent.took.Round(time.Millisecond),
				float64(sent.messages)/sent.took.Seconds(),
				sent.messages-stored.distinct, stored.repeated, stored.reordered, sent.retries,
				c.duplicates())
			if stored.distinct != sent.messages || stored.repeated > 0 || stored.reordered > 0 {
				t.Errorf("of %d messages %d are stored, %d of them again, %d out of order",
					sent.messages, stored.distinct, stored.repeated, stored.reordered)
			}
		})
	}
}

// faultyCluster is three servers with a stream of three replicas, and the sink over them.
type faultyCluster struct {
	t       *testing.T
	servers [3]*testServer
	next    int // the server that the next fault is for
	sink    *nats.Sink
	metrics *prometheus.Registry
}

func newFaultyCluster(t *testing.T) *faultyCluster {
	c := &faultyCluster{t: t, servers: newTestCluster(t), metrics: prometheus.NewRegistry()}
	c.sink = newSinkOver(t, c.urls(), ackTimeout(2*time.Second), func(cfg *nats.Options) {
		cfg.Timeout, cfg.Registry = patience, c.metrics
	})
	return c
}

func (c *faultyCluster) urls() string {
	return c.servers[0].url() + "," + c.servers[1].url() + "," + c.servers[2].url()
}

// stepDown asks the stream's leader to leave its place to another. The new one forgets what the old
// one had not replicated: some messages of a pipeline vanish and later ones of it are stored. Only
// the gate keeps each object in order.
func (c *faultyCluster) stepDown() {
	nc := c.servers[c.next%3].client()
	defer nc.Close()
	_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.K8S", nil, 2*time.Second)
	c.next++
	time.Sleep(200 * time.Millisecond)
}

// kill ends one server after the other, as far as its peers and clients can see at once, and
// starts it again.
func (c *faultyCluster) kill() {
	ts := c.servers[c.next%3]
	c.next++
	ts.stop()
	time.Sleep(300 * time.Millisecond) // messages arrive meanwhile that it has to catch up with
	ts.start()
	c.awaitAll()
}

func (c *faultyCluster) killLeader() {
	for i, ts := range c.servers {
		if ts.s.JetStreamIsStreamLeader("$G", "K8S") {
			c.next = i
		}
	}
	c.kill()
}

// lameDuck lets a server hand over what it leads, and send its clients away bit by bit, before it
// ends.
func (c *faultyCluster) lameDuck() {
	ts := c.servers[c.next%3]
	c.next++
	ts.s.LameDuckShutdown()
	ts.restart()
	c.awaitAll()
}

func (c *faultyCluster) disconnect() {
	for _, ts := range c.servers {
		connz, err := ts.s.Connz(nil)
		if err != nil {
			c.t.Errorf("connections: %v", err)
			return
		}
		for _, info := range connz.Conns {
			if info.Name == "bridge" {
				_ = ts.s.DisconnectClientByID(info.Cid)
			}
		}
	}
	time.Sleep(300 * time.Millisecond)
}

// awaitAll waits until the stream has three current replicas: with two servers away at once it
// takes nothing.
func (c *faultyCluster) awaitAll() {
	eventually(c.t, "the stream is whole", func() error {
		for _, ts := range c.servers {
			if ts.s.JetStreamIsStreamLeader("$G", "K8S") &&
				ts.s.JetStreamIsStreamCurrent("$G", "K8S") {
				return nil
			}
		}
		return fmt.Errorf("it has no leader")
	})
	eventually(c.t, "the replicas are current", func() error {
		for i, ts := range c.servers {
			if !ts.s.JetStreamIsStreamCurrent("$G", "K8S") {
				return fmt.Errorf("that of server %d is not", i)
			}
		}
		return nil
	})
}

// outcome is what a run has done.
type ackOutcome struct {
	messages, faults int
	retries          uint64
	took             time.Duration
}

// clusterObjects is how many objects change at the same time.
const clusterObjects = 200

// sendUnder publishes through a real publisher, at least so many messages and until a few faults
// have happened.
func (c *faultyCluster) sendUnder(fault func(*faultyCluster), messages int) ackOutcome {
	c.t.Helper()
	p, err := publisher.New(publisher.Config{
		Sink: c.sink, Name: "cluster", Log: testLog(c.t),
		Retry: publisher.Retry{Initial: 20 * time.Millisecond, Max: time.Second},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	<-p.Opened()
	c.awaitAll()

	var faults atomic.Int32
	done := make(chan struct{})
	var faulty sync.WaitGroup
	faulty.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				fault(c)
				faults.Add(1)
			}
		}
	})
	began := time.Now()
	sent := ackOutcome{}
	for version := 1; sent.messages < messages || faults.Load() < minFaults; version++ {
		c.addVersion(ctx, p, version)
		sent.messages += clusterObjects
	}
	close(done)
	faulty.Wait()
	drained, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := p.Drain(drained); err != nil {
		c.t.Error(err)
	}
	sent.took, sent.faults, sent.retries = time.Since(began), int(faults.Load()), p.Status().Retries
	stop()
	if err := <-ended; err != nil {
		c.t.Errorf("publisher: %v", err)
	}
	if p.Status().DeadLetters > 0 {
		c.t.Errorf("%d messages were refused", p.Status().DeadLetters)
	}
	return sent
}

// addVersion adds one change of every object. Add blocks when enough is in flight.
func (c *faultyCluster) addVersion(ctx context.Context, p *publisher.Publisher, version int) {
	items := make([]*publisher.Item, clusterObjects)
	for i := range items {
		e := sinktest.NewEvent(fmt.Sprintf("web-%d", i), version, 1024)
		items[i] = &publisher.Item{Message: sinks.Message{Event: e}, Settler: indifferent{}}
	}
	if err := p.Add(ctx, items); err != nil {
		c.t.Fatal(err)
	}
}

// indifferent takes no note of what is settled: the stream is read afterwards.
type indifferent struct{}

func (indifferent) Settle([]*publisher.Item) {}

// found is what a reader of the stream sees.
type found struct{ distinct, repeated, reordered int }

// read goes over the whole stream, after all faults, with a consumer.
func (c *faultyCluster) read() found {
	c.t.Helper()
	js := c.servers[0].jetStream()
	var stream jetstream.Stream
	eventually(c.t, "stream", func() (err error) {
		stream, err = js.Stream(c.t.Context(), "K8S")
		return err
	})
	last := stream.CachedInfo().State.LastSeq
	var consumer jetstream.Consumer
	// the servers may still be choosing who makes it
	eventually(c.t, "consumer", func() (err error) {
		consumer, err = stream.OrderedConsumer(c.t.Context(),
			jetstream.OrderedConsumerConfig{HeadersOnly: true})
		return err
	})
	messages, err := consumer.Messages()
	if err != nil {
		c.t.Fatal(err)
	}
	defer messages.Stop()
	seen, newest := map[string]bool{}, map[string]string{}
	var f found
	for read := range last {
		m, err := messages.Next(jetstream.NextMaxWait(patience))
		if err != nil {
			c.t.Fatalf("message %d of %d: %v", read+1, last, err)
		}
		name, id, sequence := m.Headers()["ce-name"][0], m.Headers()["ce-id"][0],
			m.Headers()["ce-sequence"][0]
		if seen[id] {
			f.repeated++
		}
		if sequence < newest[name] {
			f.reordered++
		}
		seen[id], newest[name] = true, max(newest[name], sequence)
	}
	f.distinct = len(seen)
	return f
}

// duplicates is how many messages the stream said that it had already.
func (c *faultyCluster) duplicates() int {
	return int(testkit.Metrics(c.t, c.metrics)["bridge_nats_duplicates_total"])
}
