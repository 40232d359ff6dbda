package bridge_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// shards are bridges side by side, each with a state of its own, over one cluster and into one
// broker.
type shards struct {
	t       *testing.T
	cluster *cluster
	broker  *testkit.Broker
	disks   map[int]*vfs.MemFS // by number of the shard
	lives   map[int]*life
	runs    map[int]resource.Shard // of the broker's sessions
}

func newShards(t *testing.T, objects int) *shards {
	rng := rand.New(rand.NewPCG(7, 0))
	return &shards{
		t: t, cluster: newCluster(t, pods, rng, objects), broker: calmBroker(t, "sink"),
		disks: map[int]*vfs.MemFS{}, lives: map[int]*life{}, runs: map[int]resource.Shard{},
	}
}

// start runs a shard with the state that one of its number has left.
func (s *shards) start(index, count int) {
	s.t.Helper()
	shard := resource.Shard{Index: index, Count: count}
	l := s.run(index, shard, nil)
	s.settle()
	if why := l.bridge.Ready(); len(why) > 0 {
		s.t.Fatalf("shard %s is not ready: %v", shard, why)
	}
}

// run runs a bridge with the state that one of its number has left, alone or as one of several
// replicas.
func (s *shards) run(number int, shard resource.Shard, standby *bridge.Standby) *life {
	s.t.Helper()
	if s.disks[number] == nil {
		s.disks[number] = vfs.NewMem()
	}
	db, err := store.Open(statedb.Options{Dir: "state", FS: s.disks[number], CacheBytes: 1 << 20, MemTableBytes: 256 << 10})
	testkit.OK(s.t, err)
	connected := s.broker.Connect(len(s.runs))
	var sink sinks.Sink = connected
	if standby != nil {
		sink = recaller{connected}
	}
	s.runs[len(s.runs)] = shard
	l := &life{db: db, sessions: []*testkit.Session{connected}, done: make(chan error, 1)}
	l.bridge, err = bridge.New(bridge.Config{
		Cluster: "test", DB: db, Log: slog.New(slog.DiscardHandler),
		Client: &reflector.Client{HTTP: s.cluster.HTTP(), Base: s.cluster.URL()},
		Units:  []informer.Config{{Informer: "all", Type: pods, Shard: shard, Sinks: []informer.Binding{{Sink: "sink"}}}},
		Sinks:  []bridge.SinkConfig{{Name: "sink", Sink: sink}}, Standby: standby,
	})
	testkit.OK(s.t, err)
	ctx, stop := context.WithCancelCause(context.WithoutCancel(s.t.Context()))
	l.stop = stop
	go func() { l.done <- l.bridge.Run(ctx) }()
	s.lives[number] = l
	return l
}

func (s *shards) stop(index int) {
	s.t.Helper()
	l := s.lives[index]
	l.stop(errStop)
	testkit.OK(s.t, <-l.done)
	testkit.OK(s.t, l.db.Close())
	delete(s.lives, index)
}

// settle changes objects, and lets things happen.
func (s *shards) settle() {
	for range 40 {
		s.cluster.change()
		time.Sleep(50 * time.Millisecond)
	}
	synctest.Wait()
}

// TestShardsGrow grows from two to three while objects change: the new one is
// started, and when it is in sync the others are stopped in order and started with the new count.
// Nothing may be lost, no object may be reported to be deleted that lives, and those that continue
// list nothing.
func TestShardsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, 40)
		s.start(0, 2)
		s.start(1, 2)
		first := len(s.cluster.all) // from when both watch
		s.settle()
		s.start(2, 3)
		before := len(s.cluster.Requests(testkit.Any))
		for _, index := range []int{0, 1} {
			s.stop(index)
			s.settle()
			s.start(index, 3)
		}
		s.settle()
		s.settle()
		s.noLists(before)
		writes := s.cluster.all[first:]
		for range 2 { // what has moved must not be missing from the lists that follow; the first is taken for one of a version too far back
			s.cluster.Streams.Error(testkit.NewStatus(http.StatusGone, metav1.StatusReasonExpired))
			time.Sleep(20 * time.Second)
		}
		if lists := len(s.cluster.Requests(testkit.Lists)) + len(s.cluster.Requests(testkit.WatchLists)); lists < 6 {
			t.Errorf("%d lists: three for the first start of each, and three after the gap, were to be seen", lists)
		}
		for _, index := range []int{0, 1, 2} {
			s.stop(index)
		}
		s.judge(writes)
	})
}

// noLists fails for lists since the request with a number.
func (s *shards) noLists(since int) {
	s.t.Helper()
	for _, r := range s.cluster.Requests(testkit.Any)[since:] {
		if testkit.Lists(r) || testkit.WatchLists(r) {
			s.t.Errorf("a shard that continues listed: %v", r.Query)
		}
	}
}

// judge compares the stream with what happened, and counts the events with an id that was reported
// before.
func (s *shards) judge(writes []*write) (repeats int) {
	reported := map[string]int{}
	last := map[string]int64{}   // by process and object
	alive := map[string]string{} // marks, by object
	for _, rec := range s.broker.Records() {
		if rec.Name == "" {
			continue
		}
		if reported[rec.ID]++; reported[rec.ID] > 1 {
			repeats++
		} else if rec.Op == event.Deleted {
			delete(alive, rec.PartitionKey)
		} else {
			alive[rec.PartitionKey] = markOf(s.t, rec.Data)
		}
		if shard := s.runs[rec.Process]; !shard.Has(pods, rec.Namespace, rec.Name) {
			s.t.Errorf("shard %s sent what is another's: %s", shard, describe(rec))
		}
		stream := fmt.Sprint(rec.Process, " ", rec.PartitionKey)
		if version := number(resource.Version(rec.ResourceVersion)); version <= last[stream] {
			s.t.Errorf("after version %d: %s", last[stream], describe(rec))
		} else {
			last[stream] = version
		}
	}
	for _, w := range writes {
		if reported[idOf(w)] == 0 {
			s.t.Errorf("lost: %s", w)
		}
	}
	for key, w := range s.cluster.alive {
		if got := alive["pods/"+string(key)]; got != w.mark {
			s.t.Errorf("a reader holds %q of %s, and the cluster %q", got, key, w.mark)
		}
	}
	if len(alive) != len(s.cluster.alive) {
		s.t.Errorf("a reader holds %d objects, and there are %d", len(alive), len(s.cluster.alive))
	}
	s.t.Logf("%d changes, %d events, %d of them with an id that was sent before", len(writes),
		len(s.broker.Records()), repeats)
	return repeats
}

// TestShardsShrink goes back from three to two: what a shard gets of another
// it has to list, which is reported as a gap. In the end a reader holds what there is.
func TestShardsShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, 40)
		for i := range 3 {
			s.start(i, 3)
		}
		s.settle()
		for i := range 2 {
			s.stop(i)
			s.settle()
			s.start(i, 2)
		}
		s.stop(2)
		s.settle()
		s.stop(0)
		s.stop(1)
		s.judge(nil)
	})
}

// TestShardsRenumbered gives each process the share of the other, as a
// pod gets it that another count sends to another shard. What it has no more is not deleted.
func TestShardsRenumbered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShards(t, 40)
		s.start(0, 2)
		s.start(1, 2)
		s.stop(0)
		s.stop(1)
		s.disks[0], s.disks[1] = s.disks[1], s.disks[0]
		// before anything changes: a delete that no shard watches can't be reported
		for index := range 2 {
			s.run(index, resource.Shard{Index: index, Count: 2}, nil)
		}
		s.settle()
		s.stop(0)
		s.stop(1)
		s.judge(nil)
	})
}
