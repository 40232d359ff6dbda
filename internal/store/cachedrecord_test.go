package store_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

var written = resource.Written{Floor: 0xfedcba98, Marks: [6]uint32{0x76543210, 1, 2, 3, 4, 0xffffffff}}

// What is kept in memory must give back exactly what was settled, whatever form uids and versions
// have.
func TestCachedRecord(t *testing.T) {
	for _, r := range []store.Record{
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd", Version: "1000000001"},
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd", Version: "18446744073709551615"},
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd", Version: "18446744073709551616"},
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd", Version: "007"},
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd", Version: "1x"},
		{UID: "5F0C6A4E-2a3d-4d7b-9c1e-00000000abcd", Version: "5"},
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-00000000abc", Version: "5"},
		{UID: "5f0c6a4e+2a3d-4d7b-9c1e-00000000abcd", Version: "5"},
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-0000000-abcd", Version: "5"},
		{UID: "any", Version: "5"},
		{UID: "", Version: "5"},
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd", Version: "5", Written: written, EventTime: 1<<62 + 3},
		{UID: "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd", Version: "5", EventTime: 1},
		{UID: "any", Version: "5x", Written: written, EventTime: 7},
	} {
		db := openDB(t, "")
		ix := newIndexer(t, db)
		obj := pod(t, "a", "1")
		settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": {Record: r, Object: obj, Seq: 1}})
		for _, from := range []*store.Indexer{ix, newIndexer(t, db)} {
			if got, found, err := from.Get("shop/a"); got != r || !found || err != nil {
				t.Errorf("%+v, %v, %v; want %+v", got, found, err, r)
			}
		}
	}
}

// What is kept in memory follows each commit.
func TestCacheAfterCommit(t *testing.T) {
	const uid, next = "5f0c6a4e-2a3d-4d7b-9c1e-00000000abcd", "6f0c6a4e-2a3d-4d7b-9c1e-00000000abcd"
	db := openDB(t, "")
	ix := newIndexer(t, db)
	obj := pod(t, "a", "1")
	for i, r := range []store.Record{
		{UID: uid, Version: "5", Written: written, EventTime: 9}, {UID: uid, Version: "6"}, {UID: uid, Version: "7", Deleted: true}, {UID: next, Version: "9"}, {UID: "odd", Version: "10"},
	} {
		s := store.NewState{Record: r, Seq: uint64(i + 1)}
		if !r.Deleted {
			s.Object = obj
		}
		settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": s})
		if got, found, err := ix.Get("shop/a"); got != r || !found || err != nil {
			t.Errorf("%+v, %v, %v; want %+v", got, found, err, r)
		}
	}
}
