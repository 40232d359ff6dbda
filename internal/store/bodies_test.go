package store_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

const bodyUID = "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd"

// identified is a pod with a uid as the API server gives them.
func identified(t *testing.T, uid, version string) *resource.Object {
	t.Helper()
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":%q,"resourceVersion":%q}}`, uid, version)
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	testkit.OK(t, err)
	return obj
}

// bodies is a database with a budget of one body a second, two at once, and one object's informer.
type bodies struct {
	t   *testing.T
	dir string
	db  *store.DB
	ix  *store.Indexer
	cfg store.IndexerConfig
	seq uint64
}

func newBodies(t *testing.T, exact bool) *bodies {
	b := &bodies{t: t, dir: t.TempDir(), cfg: store.IndexerConfig{Name: "all/pods", Type: pods, ExactBodies: exact}}
	b.open()
	return b
}

func (b *bodies) open() {
	b.t.Helper()
	var err error
	b.db, err = store.Open(statedb.Options{Dir: b.dir})
	testkit.OK(b.t, err)
	b.db.SetBodiesPerSecond(1)
	b.ix, err = b.db.Indexer(b.cfg)
	testkit.OK(b.t, err)
}

// settle commits a version, and gives the version of the body that is on disk then.
func (b *bodies) settle(uid, version string) string {
	b.t.Helper()
	obj := identified(b.t, uid, version)
	b.seq++
	b.ix.Update("shop/a", live(obj, b.seq))
	settle(b.t, b.db, b.ix, "", map[resource.Key]store.NewState{"shop/a": live(obj, b.seq)})
	rec, found, err := b.ix.Get("shop/a")
	if err != nil || !found || string(rec.Version) != version || rec.UID != uid {
		b.t.Errorf("the record is %+v, %v, %v; want version %s", rec, found, err, version)
	}
	body, err := b.ix.Object("shop/a")
	testkit.OK(b.t, err)
	if body == nil || string(body.Raw) != string(identified(b.t, body.UID, string(body.Version)).Raw) {
		b.t.Fatalf("the body is %v", body)
	}
	return body.UID[:1] + "@" + string(body.Version)
}

// Beyond their budget, bodies stay as they were.
func TestBodyBudget(t *testing.T) {
	other := "6" + bodyUID[1:]
	for _, test := range []struct {
		name  string
		exact bool
		then  func(b *bodies)
		uid   string // of the last version
		want  string
	}{
		{"an update beyond it", false, nil, bodyUID, "5@2"},
		{"one that comes later", false, func(*bodies) { time.Sleep(time.Second) }, bodyUID, "5@4"},
		{"another object of the name", false, nil, other, "6@4"},
		{"an informer that needs exact ones", true, nil, bodyUID, "5@4"},
		{"when there is no bound any more", false, func(b *bodies) { b.db.SetBodiesPerSecond(0) }, bodyUID, "5@4"},
		{"after a restart", false, func(b *bodies) {
			testkit.OK(b.t, b.db.Close())
			b.open()
			for i := range 3 { // others use it up
				obj := pod(b.t, fmt.Sprint("other-", i), "1")
				settle(b.t, b.db, b.ix, "", map[resource.Key]store.NewState{resource.Key(fmt.Sprint("shop/other-", i)): live(obj, 100)})
			}
		}, bodyUID, "5@4"},
		{"after a rewind", false, func(b *bodies) {
			testkit.OK(b.t, b.ix.Rewind())
		}, bodyUID, "5@4"},
		{"after its delete", false, func(b *bodies) {
			settle(b.t, b.db, b.ix, "", map[resource.Key]store.NewState{"shop/a": dead(identified(b.t, bodyUID, "3"), "3", 50)})
			b.seq = 50
		}, bodyUID, "5@4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBodies(t, test.exact)
				defer func() { testkit.OK(t, b.db.Close()) }()
				var got []string
				for _, version := range []string{"1", "2", "3"} {
					got = append(got, b.settle(bodyUID, version))
				}
				if three := map[bool]string{false: "5@2", true: "5@3"}[test.exact]; strings.Join(got, " ") != "5@1 5@2 "+three {
					t.Errorf("the bodies of versions 1 to 3 are %v", got)
				}
				if test.then != nil {
					test.then(b)
				}
				if got := b.settle(test.uid, "4"); got != test.want {
					t.Errorf("the body of version 4 is %s, want %s", got, test.want)
				}
			})
		})
	}
}

// An informer that began with nothing finds what it has committed.
func TestEmptyStartCommitted(t *testing.T) {
	dir := t.TempDir()
	for _, run := range []string{"the first", "the next"} {
		db := openDB(t, dir)
		ix := newIndexer(t, db)
		if run == "the first" {
			odd, gone := pod(t, "odd", "1"), identified(t, bodyUID, "2")
			settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/odd": live(odd, 1), "shop/a": dead(gone, "3", 2)})
		}
		for key, want := range map[resource.Key]bool{"shop/odd": true, "shop/a": true, "shop/never": false} {
			if _, found, err := ix.Get(key); found != want || err != nil {
				t.Errorf("%s run: %s found: %v, %v; want %v", run, key, found, err, want)
			}
		}
		testkit.OK(t, db.Close())
	}
}

// An informer that began with nothing asks the database for what its memory does not have.
func TestEmptyStartReadsDatabase(t *testing.T) {
	db := openDB(t, "")
	ix := newIndexer(t, db)
	const n = 10_000 // more than are kept in memory of those that have no short form
	settled := map[resource.Key]store.NewState{}
	for i := range n {
		settled[resource.Key(fmt.Sprintf("shop/p-%d", i))] = store.NewState{Record: store.Record{UID: "odd", Version: "9", Deleted: true}, Seq: 1}
	}
	settle(t, db, ix, "", settled)
	for key := range settled {
		if rec, found, err := ix.Get(key); !found || err != nil || !rec.Deleted {
			t.Fatalf("%s: %+v, %v, %v", key, rec, found, err)
		}
	}
	if _, found, err := ix.Get("shop/never"); found || err != nil {
		t.Errorf("one that never was: %v, %v", found, err)
	}
}
