package kafkatest_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

var pods = resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

// pipeline runs bridges one after the other, from a scripted API server to a cluster.
type bridgeTest struct {
	t       *testing.T
	server  *testkit.Server
	cluster *kafkatest.Cluster
	change  func(*kafka.Options)
	beside  func() []bridge.SinkConfig // other sinks; nil for none
	// progress is how often each sink is sent up to where it is complete; 0: never.
	progress time.Duration
	fs       *vfs.MemFS
	life     *life
	runs     int
	dying    sync.WaitGroup
}

// life is one process.
type life struct {
	db      *store.DB
	bridge  *bridge.Bridge
	network *network
	stop    context.CancelFunc
	done    chan error
}

func newPipeline(t *testing.T, c *kafkatest.Cluster, change func(*kafka.Options)) *bridgeTest {
	p := &bridgeTest{t: t, server: testkit.NewServer(t, pods), cluster: c, change: change, fs: vfs.NewCrashableMem()}
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
	log := slog.New(slog.NewTextHandler(quiet{p.t}, &slog.HandlerOptions{Level: slog.LevelInfo})).With("run", p.runs)
	sink := newSink(p.t, p.cluster, l.network.use, p.change, func(c *kafka.Options) { c.Log = log })
	list := []bridge.SinkConfig{{Name: "kafka", Sink: sink}}
	if p.beside != nil {
		list = append(list, p.beside()...)
	}
	var bindings []informer.Binding
	for _, s := range list {
		bindings = append(bindings, informer.Binding{Sink: s.Name, Progress: p.progress})
	}
	l.bridge, err = bridge.New(bridge.Config{
		Cluster: "test", DB: l.db, Log: log, Drain: 3 * time.Second,
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
	p.life.stop()
	must(p.t, <-p.life.done)
	must(p.t, p.life.db.Close())
	p.life = nil
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

// settled reports whether everything that the server has is committed.
func (p *bridgeTest) settled() bool {
	s := p.life.bridge.Status().Informers[0]
	return resource.Version(s.Watermark) == p.server.Version() && s.Unsettled == 0
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
