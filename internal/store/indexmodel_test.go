package store_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

var indexOps = flag.Int("index-ops", 20_000, "operations of TestIndexModel; a tenth with -short")

// indexModel is an Indexer beside client-go's own, which has the newest states.
type indexModel struct {
	t    *testing.T
	rng  *rand.Rand
	fs   *vfs.MemFS
	disk *faults
	db   *store.DB
	ix   *store.Indexer
	seq  uint64

	model   cache.Indexer
	indexes []store.Index
	settled map[resource.Key]store.NewState
	bodies  []store.Body
}

// modelIndexers are the index functions on the decoded object.
var modelIndexers = cache.Indexers{
	"owner": func(obj any) (uids []string, _ error) {
		for _, o := range decoded(obj).Metadata.OwnerReferences {
			uids = append(uids, o.UID)
		}
		return uids, nil
	},
	"node": func(obj any) ([]string, error) {
		if node := decoded(obj).Spec.NodeName; node != "" {
			return []string{node}, nil
		}
		return nil, nil
	},
	"byUser": func(obj any) (users []string, _ error) {
		return byUsers("").Values(nil, obj.(*resource.Object)), nil
	},
}

type decodedPod struct {
	Metadata struct{ OwnerReferences []struct{ UID string } }
	Spec     struct{ NodeName string }
}

func decoded(obj any) (pod decodedPod) {
	if err := json.Unmarshal(obj.(*resource.Object).Raw, &pod); err != nil {
		panic(err)
	}
	return pod
}

func (m *indexModel) open() {
	var err error
	m.db, err = store.Open(statedb.Options{
		Dir: "state", FS: faulty{errorfs.Wrap(m.fs, m.disk)},
		Fatal: func(err error) { m.t.Errorf("the database can't continue: %v", err) },
	})
	testkit.OK(m.t, err)
	m.db.SetBodiesPerSecond(100)
	m.ix, err = m.db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Indexes: m.indexes})
	testkit.OK(m.t, err)
	for key, s := range m.settled { // the watch reports them again
		m.ix.Update(key, s)
	}
	m.bodies = nil
}

// reopen begins again with what a crash leaves, or all, and maybe with other indexes.
func (m *indexModel) reopen() {
	after := m.fs
	if m.rng.IntN(2) == 0 {
		after = m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.rng.IntN(101), RNG: m.rng})
	}
	testkit.OK(m.t, m.db.Close())
	m.fs = after
	if m.rng.IntN(2) == 0 {
		m.indexes = []store.Index{store.ByOwner(), store.ByNode(), byUsers(fmt.Sprint(m.rng.IntN(2)))}[m.rng.IntN(3):]
	}
	m.open()
}

// change makes the next state of an object the newest one.
func (m *indexModel) change() {
	name := fmt.Sprint("p", m.rng.IntN(60))
	key := resource.MakeKey("shop", name)
	m.seq++
	version := resource.Version(fmt.Sprint(100 + m.seq))
	before, exists, err := m.model.GetByKey(string(key))
	testkit.OK(m.t, err)
	uid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", m.seq)
	if exists {
		uid = before.(*resource.Object).UID
	}
	var s store.NewState
	if exists && m.rng.IntN(6) == 0 {
		s = dead(before.(*resource.Object), version, m.seq)
		testkit.OK(m.t, m.model.Delete(before))
	} else {
		obj := m.pod(name, uid, version)
		s = live(obj, m.seq)
		testkit.OK(m.t, m.model.Add(obj))
	}
	m.settled[key] = s
	m.ix.Update(key, s)
}

func (m *indexModel) pod(name, uid string, version resource.Version) *resource.Object {
	pick := func(of ...string) string { return of[m.rng.IntN(len(of))] }
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q%s},"spec":{%s"users":%q}}`,
		name, uid, version,
		pick("", `,"ownerReferences":[]`, `,"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"a","uid":"o1","controller":true}]`,
			`,"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"a","uid":"o1"},{"apiVersion":"v1","kind":"Pod","name":"b","uid":"o2"}]`),
		pick("", `"nodeName":"n1",`, `"nodeName":"n1",`, `"nodeName":"n2",`), pick("", "ernie", "ernie,bert", "bert,oscar", "oscar,oscar"))
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	testkit.OK(m.t, err)
	return obj
}

// commit writes what is settled, after a failure again.
func (m *indexModel) commit() {
	for {
		batch := m.db.NewBatch()
		batch.BuildIndexes(m.ix)
		for _, body := range m.bodies {
			batch.RefreshBody(m.ix, body)
		}
		for key, s := range m.settled {
			batch.Settle(m.ix, key, s)
		}
		if err := batch.Commit(); err == nil {
			break
		}
		for range m.rng.IntN(4) {
			m.change()
		}
		if m.rng.IntN(2) == 0 {
			m.disk.set(nil, nil)
			time.Sleep(time.Second)
		}
	}
	m.ix.Forget(m.settled)
	clear(m.settled)
	m.bodies = nil
}

// refresh reads stale bodies, as the API server has them.
func (m *indexModel) refresh() {
	keys, err := m.ix.StaleBodies().From("", 100)
	testkit.OK(m.t, err)
	for _, key := range keys {
		if obj, exists, _ := m.model.GetByKey(string(key)); exists {
			m.bodies = append(m.bodies, store.Body{Key: key, Object: obj.(*resource.Object)})
		}
	}
}

// finish builds the indexes to their end, for which no body may be stale.
func (m *indexModel) finish() {
	for range 3 {
		m.commit()
		m.refresh()
	}
	m.commit()
	m.commit()
}

func (m *indexModel) step() {
	switch n := m.rng.IntN(1000); {
	case n < 4:
		m.reopen()
		m.finish()
	case n < 8:
		m.disk.set(syscall.ENOSPC, on("*.log"))
		m.commit()
		m.disk.set(nil, nil)
	case n < 150:
		m.commit()
	case n < 160:
		m.refresh()
	case n < 162:
		testkit.OK(m.t, m.ix.Rewind())
	default:
		m.change()
	}
}

// compare compares one index, or one value of it.
func (m *indexModel) compare(name string, values ...string) {
	m.t.Helper()
	if len(values) == 0 {
		values = m.model.ListIndexFuncValues(name)
		var listed []string
		for value, err := range m.ix.Indexes().ListIndexFuncValues(name) {
			testkit.OK(m.t, err)
			listed = append(listed, value)
		}
		slices.Sort(values)
		slices.Sort(listed)
		testkit.Want(m.t, listed, values...)
	}
	for _, value := range values {
		expected, err := m.model.ByIndex(name, value)
		testkit.OK(m.t, err)
		var want, got []string
		for _, obj := range expected {
			o := obj.(*resource.Object)
			want = append(want, string(o.Key())+"@"+string(o.Version))
		}
		for item, err := range m.ix.Indexes().ByIndex(name, value) {
			testkit.OK(m.t, err)
			got = append(got, string(item.Key)+"@"+string(item.Version))
		}
		slices.Sort(want)
		slices.Sort(got)
		testkit.Want(m.t, got, want...)
	}
}

// After each operation the indexes have what client-go's own Indexer has: with restarts, crashes,
// full disks, stale bodies and other indexes in between.
func TestIndexModel(t *testing.T) {
	ops := *indexOps
	if testing.Short() {
		ops /= 10
	}
	const perSeed = 5_000
	for seed := range uint64(max(ops/perSeed, 1)) {
		synctest.Test(t, func(t *testing.T) {
			m := &indexModel{
				t: t, rng: rand.New(rand.NewPCG(seed, 0)), fs: vfs.NewCrashableMem(), disk: &faults{},
				settled: map[resource.Key]store.NewState{},
				model:   cache.NewIndexer(func(obj any) (string, error) { return string(obj.(*resource.Object).Key()), nil }, modelIndexers),
				indexes: []store.Index{store.ByOwner(), store.ByNode(), byUsers("0")},
			}
			m.open()
			someValues := []string{"o1", "o2", "n1", "n2", "ernie", "bert", "oscar", "none"}
			for n := range perSeed {
				m.step()
				names := m.ix.Indexes().GetIndexers()
				m.compare(names[m.rng.IntN(len(names))], someValues[m.rng.IntN(len(someValues))])
				if n%100 == 0 {
					for _, name := range names {
						m.compare(name)
					}
				}
				if t.Failed() {
					t.Fatalf("seed %d, step %d", seed, n)
				}
			}
			testkit.OK(t, m.db.Close())
		})
	}
}
