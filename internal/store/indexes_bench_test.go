package store_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var indexObjects = flag.Int("index-objects", 100_000, "objects of BenchmarkByIndex")

// costOfIndexes settles the same updates with some indexes.
type costOfIndexes struct {
	b       *testing.B
	name    string
	changes bool // each update is of another node
	db      *store.DB
	ix      *store.Indexer
	round   int
	settled map[resource.Key]store.NewState
	time    time.Duration
	bytes   uint64
}

const costObjects = 1000

func newCostOfIndexes(b *testing.B, name string, changes bool, indexes ...store.Index) *costOfIndexes {
	b.Helper()
	db, err := store.Open(statedb.Options{Dir: b.TempDir()})
	testkit.OK(b, err)
	b.Cleanup(func() { testkit.OK(b, db.Close()) })
	ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Indexes: indexes})
	testkit.OK(b, err)
	return &costOfIndexes{
		b: b, name: name, changes: changes, db: db, ix: ix,
		settled: make(map[resource.Key]store.NewState, costObjects),
	}
}

func (c *costOfIndexes) commit(versions []*resource.Object) {
	before, began := c.db.PebbleMetrics().WAL.BytesIn, processorTime(c.b)
	batch := c.db.NewBatch()
	c.round++
	obj := versions[0]
	if c.changes {
		obj = versions[c.round%len(versions)]
	}
	for n := range costObjects {
		key := resource.Key(fmt.Sprintf("shop/web-%04d", n))
		s := store.NewState{Record: store.Record{
			UID: fmt.Sprintf("%08x-0000-4000-8000-000000000000", n), Version: resource.Version(fmt.Sprint(1000 + c.round)),
		}, Object: obj, Seq: uint64(c.round)}
		c.settled[key] = s
		batch.Settle(c.ix, key, s)
	}
	testkit.OK(c.b, batch.Commit())
	c.ix.Forget(c.settled)
	c.time += processorTime(c.b) - began
	c.bytes += c.db.PebbleMetrics().WAL.BytesIn - before
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	testkit.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkIndexes is what the default indexes add to an update of a real pod in a commit, in
// processor time, each in a pair with the same update without indexes. Bodies are left, as in a
// flood.
func BenchmarkIndexes(b *testing.B) {
	raw, err := os.ReadFile("../resource/testdata/pod.json")
	testkit.OK(b, err)
	versions := make([]*resource.Object, 2)
	for i := range versions {
		node := fmt.Sprintf("ip-10-0-41-%d.eu-central-1.compute.internal", i)
		other := regexp.MustCompile(`"nodeName": ?"[^"]*"`).ReplaceAll(raw, fmt.Appendf(nil, `"nodeName":%q`, node))
		versions[i], err = resource.Parse(other, resource.ParseOptions{Type: pods})
		testkit.OK(b, err)
		if versions[i].NodeName != node {
			b.Fatalf("the pod is on node %q", versions[i].NodeName)
		}
	}
	none := newCostOfIndexes(b, "none", false)
	others := []*costOfIndexes{
		newCostOfIndexes(b, "unchanged", false, store.ByOwner(), store.ByNode()),
		newCostOfIndexes(b, "changed", true, store.ByOwner(), store.ByNode()),
	}
	all := append(others, none)
	for _, c := range all {
		c.commit(versions)
		c.db.SetBodiesPerSecond(1)
		c.time, c.bytes = 0, 0
	}
	for b.Loop() {
		for _, c := range all {
			c.commit(versions)
		}
	}
	updates := float64(b.N * costObjects)
	b.ReportMetric(float64(none.time.Nanoseconds())/updates, "none-ns/update")
	for _, c := range others {
		b.ReportMetric(float64(c.time-none.time)/updates, c.name+"-ns/update")
		b.ReportMetric(float64(int64(c.bytes-none.bytes))/updates, c.name+"-B/update")
	}
}

// BenchmarkByIndex is ByIndex of 30 objects, with their bodies, in a state that was just opened.
func BenchmarkByIndex(b *testing.B) {
	const owned = 30
	dir := b.TempDir()
	open := func() (*store.DB, *store.Indexer) {
		db, err := store.Open(statedb.Options{Dir: dir})
		testkit.OK(b, err)
		ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Indexes: []store.Index{store.ByOwner(), store.ByNode()}})
		testkit.OK(b, err)
		return db, ix
	}
	db, ix := open()
	const batchOf = 1000
	for n := 0; n < *indexObjects; n += batchOf {
		batch, settled := db.NewBatch(), map[resource.Key]store.NewState{}
		for i := n; i < n+batchOf; i++ {
			raw := fmt.Appendf(nil, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-%d","namespace":"shop","uid":"%08x-0000-4000-8000-000000000000","resourceVersion":"%d",`+
				`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"o%d"}]},"spec":{"nodeName":"n%d"}}`,
				i, i, 1000+i, i%(*indexObjects/owned), i%5000)
			obj, err := resource.Parse(raw, resource.ParseOptions{Type: pods})
			testkit.OK(b, err)
			settled[obj.Key()] = live(obj, uint64(i))
			batch.Settle(ix, obj.Key(), settled[obj.Key()])
		}
		testkit.OK(b, batch.Commit())
		ix.Forget(settled)
	}
	testkit.OK(b, db.Close())
	took, n := time.Duration(0), 0
	for b.Loop() {
		db, ix = open()
		n++
		began, found := time.Now(), 0
		for item, err := range ix.Indexes().ByIndex("owner", fmt.Sprint("o", n*37%(*indexObjects/owned))) {
			testkit.OK(b, err)
			obj, err := item.Object()
			testkit.OK(b, err)
			if obj != nil {
				found++
			}
		}
		took += time.Since(began)
		if found < owned {
			b.Fatalf("%d objects", found)
		}
		testkit.OK(b, db.Close())
	}
	b.ReportMetric(float64(took.Microseconds())/float64(n), "µs/cold")
}
