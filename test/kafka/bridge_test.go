package kafkatest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

var pods = resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

// bridgeTest runs bridges one after the other, from a scripted API server to a broker.
type bridgeTest struct {
	t      *testing.T
	server *testkit.Server
	sink   func(n *network, log *slog.Logger) sinks.Sink
	beside func() []bridge.SinkConfig // other sinks; nil for none
	// progress is how often each sink is sent up to where it is complete; 0: never.
	progress time.Duration
	fs       *vfs.MemFS
	stay     sync.Mutex // held while the bridge must not be killed, or is not there
	life     *life
	runs     int
	dying    sync.WaitGroup
}

// life is one process.
type life struct {
	db      *store.DB
	bridge  *bridge.Bridge
	network *network
	log     testkit.Buffer
	stop    context.CancelFunc
	done    chan error
}

// newPipeline sends to a Kafka cluster.
func newPipeline(t *testing.T, c *kafkatest.Cluster, change func(*kafka.Options)) *bridgeTest {
	return newBridgeTest(t, func(n *network, log *slog.Logger) sinks.Sink {
		return newSink(t, c, n.use, change, func(c *kafka.Options) { c.Log = log })
	})
}

func newBridgeTest(t *testing.T, sink func(*network, *slog.Logger) sinks.Sink) *bridgeTest {
	p := &bridgeTest{t: t, server: testkit.NewServer(t, pods), sink: sink, fs: vfs.NewCrashableMem()}
	t.Cleanup(func() {
		if p.life != nil {
			p.crash()
		}
		p.dying.Wait()
	})
	return p
}

// start runs a bridge with the state that the last one has left.
func (p *bridgeTest) start() {
	p.t.Helper()
	l := &life{network: new(network), done: make(chan error, 1)}
	var err error
	l.db, err = store.Open(statedb.Options{Dir: "state", FS: p.fs})
	must(p.t, err)
	p.runs++
	log := slog.New(slog.NewTextHandler(io.MultiWriter(quiet{p.t}, &l.log), &slog.HandlerOptions{Level: slog.LevelInfo})).With("run", p.runs)
	list := []bridge.SinkConfig{{Name: "broker", Sink: p.sink(l.network, log)}}
	if p.beside != nil {
		list = append(list, p.beside()...)
	}
	var bindings []informer.Binding
	for _, s := range list {
		bindings = append(bindings, informer.Binding{Sink: s.Name, Progress: p.progress})
	}
	l.bridge, err = bridge.New(bridge.Config{
		Cluster: "test", DB: l.db, Log: log, Drain: time.Minute,
		Client: &reflector.Client{HTTP: p.server.HTTP(), Base: p.server.URL()},
		Sinks:  list,
		Units:  []informer.Config{{Informer: "all", Type: pods, Sinks: bindings}},
	})
	must(p.t, err)
	ctx, stop := context.WithCancelCause(context.WithoutCancel(p.t.Context()))
	l.stop = func() { stop(errors.New("the test stops it")) }
	go func() { l.done <- l.bridge.Run(ctx) }()
	p.life = l
}

// stop ends the bridge in order.
func (p *bridgeTest) stop() {
	p.t.Helper()
	l := p.life
	l.stop()
	p.life = nil
	must(p.t, <-l.done)
	must(p.t, l.db.Close())
}

// crash ends the bridge as kill -9 does: from here on nothing leaves it, and of its state remains
// what was synced. What a broker has received may yet be stored.
func (p *bridgeTest) crash() {
	l := p.life
	l.network.cut(true)
	after := p.fs.CrashClone(vfs.CrashCloneCfg{})
	l.stop()
	p.dying.Go(func() { // what it still writes is not in the clone
		<-l.done
		_ = l.db.Close()
	})
	p.fs, p.life = after, nil
}

// settled reports whether the sinks have everything that the server has: what is only spooled is
// committed too.
func (p *bridgeTest) settled() bool {
	status := p.life.bridge.Status()
	s := &status.Informers[0]
	return resource.Version(s.Watermark) == p.server.Version() && s.Unsettled == 0 &&
		!slices.ContainsFunc(status.Sinks, func(s bridge.SinkStatus) bool { return s.PendingChanges > 0 })
}

// settle waits for that.
func (p *bridgeTest) settle(within time.Duration) {
	p.t.Helper()
	for deadline := time.Now().Add(within); !p.settled(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("not settled after %v: %+v; the server is at %s", within, p.life.bridge.Status(), p.server.Version())
		}
		p.server.Streams.Bookmark()
	}
}

// quiet leaves out of a test's output what is reported at each start.
type quiet struct{ t *testing.T }

func (q quiet) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "level=INFO") && !strings.Contains(string(line), "it is not sent again") {
		return len(line), nil
	}
	return q.t.Output().Write(line)
}
