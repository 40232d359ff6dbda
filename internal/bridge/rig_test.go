package bridge_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// rig runs bridges one after the other, with one state, over one API server.
type rig struct {
	*testkit.Server
	t   *testing.T
	fs  *vfs.MemFS
	cfg bridge.Config // of the next start
	log *logBuffer
	// wrap puts something between the state and its disk; nil for nothing.
	wrap func(vfs.FS) vfs.FS
	// bodies per second that are written; 0 for all.
	bodies int

	*bridge.Bridge
	db   *store.DB
	stop context.CancelCauseFunc
	done chan error
}

// newRig follows pods. It is called within a synctest bubble.
func newRig(t *testing.T, brokers ...*testkit.Broker) *rig {
	r := &rig{Server: testkit.NewServer(t, pods), t: t, fs: vfs.NewCrashableMem(), log: &logBuffer{}}
	r.cfg = bridge.Config{
		Cluster: "test", Units: []informer.Config{{Informer: "all", Type: pods}},
		Client: &reflector.Client{HTTP: r.HTTP(), Base: r.URL()},
		Log:    slog.New(slog.NewTextHandler(r.log, nil)),
	}
	for _, b := range brokers {
		r.addSink(b.Name, b.Connect(0))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// calmBroker is a broker that answers everything.
func calmBroker(t *testing.T, name string) *testkit.Broker {
	b := testkit.NewBroker(t, name, sinks.ByObject)
	b.Seed = 1
	return b
}

// addSink adds a sink that every unit sends to.
func (r *rig) addSink(name string, sink sinks.Sink) {
	r.cfg.Sinks = append(r.cfg.Sinks, bridge.SinkConfig{Name: name, Sink: sink})
	for i := range r.cfg.Units {
		r.cfg.Units[i].Sinks = append(r.cfg.Units[i].Sinks, informer.Binding{Sink: name})
	}
}

// start runs a bridge.
func (r *rig) start() {
	r.t.Helper()
	var err error
	var disk vfs.FS = r.fs
	if r.wrap != nil {
		disk = r.wrap(disk)
	}
	r.db, err = store.Open(statedb.Options{Dir: "state", FS: disk, CacheBytes: 1 << 20, MemTableBytes: 256 << 10, Log: r.cfg.Log})
	testkit.OK(r.t, err)
	r.db.SetBodiesPerSecond(r.bodies)
	r.cfg.DB = r.db
	r.Bridge, err = bridge.New(r.cfg)
	testkit.OK(r.t, err)
	var ctx context.Context
	ctx, r.stop = context.WithCancelCause(context.WithoutCancel(r.t.Context()))
	r.done = make(chan error, 1)
	go func() { r.done <- r.Run(ctx) }()
	r.settle()
}

// end stops the bridge and gives what Run returned, and how long that took.
func (r *rig) end() (took time.Duration, err error) {
	r.t.Helper()
	began := time.Now()
	r.stop(errStop)
	err = <-r.done
	took = time.Since(began)
	testkit.OK(r.t, r.db.Close())
	return took, err
}

// settle lets things happen, for less than any timeout.
func (r *rig) settle() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

// expect compares what a broker has acknowledged since the last call with lines such as "added a".
func expect(t *testing.T, b *testkit.Broker, lines ...string) {
	t.Helper()
	var got []string
	for _, rec := range b.Next() {
		if !rec.Acked || bytes.Contains(rec.Data, []byte(`"since":"`)) && rec.Op == event.Progress {
			continue // how long there was no watch is for TestUnwatched
		}
		line := rec.Type[strings.LastIndexByte(rec.Type, '.')+1:]
		if rec.Name != "" {
			line += " " + rec.Name
		}
		if rec.Inferred {
			line += " inferred"
		}
		got = append(got, line)
	}
	slices.Sort(got) // between objects there is no order
	slices.Sort(lines)
	if !slices.Equal(got, lines) {
		t.Errorf("%s has\n\t%s\nwant\n\t%s", b.Name, strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
	}
}

// asked are the requests, without the probes, which the version clock makes too.
func (r *rig) asked() []testkit.Request {
	return slices.DeleteFunc(r.Requests(testkit.Any), testkit.Probes)
}

// logBuffer keeps a log.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
