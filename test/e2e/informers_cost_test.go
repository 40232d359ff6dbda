package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/client"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var manyInformers = flag.Int("informers.count", 20, "how many informers TestManyInformers has")

// usage is what some processes have used.
type usage struct {
	cpu time.Duration
	rss int64 // bytes
}

// usageOf is that of processes and of their children: the components of the control plane are
// processes of their own. It reads /proc.
func usageOf(t *testing.T, pids ...int) (all usage) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	parents, each := map[int]int{}, map[int]usage{}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		id, after, _ := strings.Cut(string(stat), " ")
		after = after[strings.LastIndex(after, ") ")+2:]
		var state string
		var parent, skip, user, system, pages int64
		_, err = fmt.Sscan(after, &state, &parent, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip,
			&skip, &user, &system, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &pages)
		must(t, err)
		pid, err := strconv.Atoi(id)
		must(t, err)
		const tick = time.Second / 100
		parents[pid] = int(parent)
		each[pid] = usage{time.Duration(user+system) * tick, pages * int64(os.Getpagesize())}
	}
	for pid := range each {
		for at := pid; at > 1; at = parents[at] {
			if slices.Contains(pids, at) {
				all.cpu += each[pid].cpu
				all.rss += each[pid].rss
				break
			}
		}
	}
	return all
}

func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func ownHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// crowd are many informers of ConfigMaps in this process, and what they cost.
type crowd struct {
	t         *testing.T
	l         *lab
	count     int
	objects   int
	informers []cache.SharedIndexInformer
	reported  atomic.Int64
	stop      chan struct{}
	running   sync.WaitGroup
}

func (c *crowd) await(what string, n int) {
	c.t.Helper()
	eventually(c.t, what, 10*time.Minute, func() []string {
		if reported := c.reported.Load(); reported < int64(n) {
			return []string{fmt.Sprintf("%d of %d", reported, n)}
		}
		return nil
	})
}

func (c *crowd) start(lw cache.ListerWatcher) {
	c.t.Helper()
	informer := cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.reported.Add(1) }, UpdateFunc: func(any, any) { c.reported.Add(1) },
	})
	must(c.t, err)
	c.informers = append(c.informers, informer)
	c.running.Go(func() { informer.Run(c.stop) })
}

// missing are the differences in versions between the API server and an informer.
func missing(want []truth.Change, got cache.Store) (problems []string) {
	if len(want) != len(got.ListKeys()) {
		problems = append(problems, fmt.Sprintf("%d objects, want %d", len(got.ListKeys()), len(want)))
	}
	for _, w := range want {
		found, ok, _ := got.GetByKey(w.Metadata.Namespace + "/" + w.Metadata.Name)
		if !ok || found.(*corev1.ConfigMap).ResourceVersion != w.Metadata.ResourceVersion {
			problems = append(problems, w.Metadata.Name+" is not in version "+w.Metadata.ResourceVersion)
		}
	}
	return problems
}

// measure starts the informers, changes objects, and compares what they hold. The servers are the
// processes that serve the informers.
func (c *crowd) measure(name string, updates int, lw func() cache.ListerWatcher, servers ...int) {
	c.t.Helper()
	c.informers, c.stop = nil, make(chan struct{})
	c.reported.Store(0)
	heap, cpu, served, began := ownHeap(), ownCPU(c.t), usageOf(c.t, servers...), time.Now()
	for range c.count {
		c.start(lw())
	}
	c.await("the lists", c.count*c.objects)
	took := time.Since(began)
	listedCPU, listed := ownCPU(c.t), usageOf(c.t, servers...)
	held := ownHeap() - heap
	c.t.Logf("%s, %d informers of %d objects: listed in %v; heap %.1f MiB, CPU %v; the servers' CPU "+
		"%v, memory %.0f MiB more", name, c.count, c.objects, took.Round(time.Millisecond), float64(held)/(1<<20),
		(listedCPU - cpu).Round(time.Millisecond), listed.cpu-served.cpu,
		float64(listed.rss-served.rss)/(1<<20))

	cpu, served, began = ownCPU(c.t), usageOf(c.t, servers...), time.Now()
	c.reported.Store(0)
	for i := range updates {
		c.l.updateConfigMap(fmt.Sprintf("map-%d", i%c.objects), fmt.Sprint(name, i))
	}
	c.await("the updates", c.count*updates)
	after := usageOf(c.t, servers...)
	c.t.Logf("%s: an update reached all in %v; CPU %v; the servers' CPU %v", name,
		(time.Since(began) / time.Duration(updates)).Round(time.Microsecond),
		((ownCPU(c.t) - cpu) / time.Duration(updates)).Round(time.Microsecond),
		(after.cpu-served.cpu)/time.Duration(updates))
	want := c.l.exists([]truth.Collection{truth.Core("configmaps", c.l.namespace)})
	for i, informer := range c.informers {
		if problems := missing(want, informer.GetStore()); len(problems) > 0 {
			c.t.Errorf("%s, informer %d: %v", name, i, problems)
		}
	}
	close(c.stop)
	c.running.Wait()
	c.informers = nil
}

// TestManyInformers compares informers that share one reader of a bucket with as many that each
// have a watch on the API server. It has a cluster to itself, whose processes it measures.
func TestManyInformers(t *testing.T) {
	l := newLab(t, ownCluster(t, "informers", noControllers))
	const objects, updates = 200, 100
	value := strings.Repeat("x", 500)
	l.each(objects, func(i int) { l.createConfigMap(fmt.Sprintf("map-%d", i), value) })
	c := &crowd{t: t, l: l, count: *manyInformers, objects: objects}

	b := l.bridge("bridge", configMaps+`
sinks:
  - {name: now, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true, mode: kv, bucket: NOW}}
`)
	l.start(b)
	l.awaitBucket(b, l.exists([]truth.Collection{truth.Core("configmaps", l.namespace)}))
	nc, err := nats.Connect(b.NATS)
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	reader := sync.OnceValue(func() *client.Client {
		made := client.New(client.Bucket(js, "NOW"))
		go func() { _ = made.Run(t.Context()) }()
		return made
	})
	c.measure("one reader of a bucket", updates, func() cache.ListerWatcher {
		lw, err := reader().ListerWatcher(t.Context(), schema.GroupResource{Resource: "configmaps"},
			client.Options{Scheme: scheme.Scheme})
		must(t, err)
		return lw
	}, l.Pid(), b.Pid())
	l.stop(b)
	c.measure("watches on the API server", updates, func() cache.ListerWatcher {
		return cache.NewListWatchFromClient(l.client.CoreV1().RESTClient(), "configmaps", l.namespace,
			fields.Everything())
	}, l.Pid())
}
