package store_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Cases of client-go's tests that no other test here has. docs/testdata/upstream_cases.txt has all.

// As TestCache, through doTestStore: what was put is there, until it is replaced or gone; at once,
// and after it was committed.
func TestIndexerContents(t *testing.T) {
	for name, commit := range map[string]bool{"in flight": false, "settled": true} {
		t.Run(name, func(t *testing.T) {
			db := openDB(t, "")
			ix := newIndexer(t, db)
			seq := uint64(0)
			put := func(name, version string) {
				seq++
				obj := pod(t, name, version)
				ix.Update(obj.Key(), live(obj, seq))
				if commit {
					settle(t, db, ix, "", map[resource.Key]store.NewState{obj.Key(): live(obj, seq)})
				}
			}
			remove := func(name, version string) {
				seq++
				obj := pod(t, name, version)
				ix.Update(obj.Key(), dead(obj, obj.Version, seq))
				if commit {
					settle(t, db, ix, "", map[resource.Key]store.NewState{obj.Key(): dead(obj, obj.Version, seq)})
				}
			}
			holds := func(key resource.Key, version resource.Version) {
				t.Helper()
				obj, err := ix.Object(key)
				testkit.OK(t, err)
				if obj == nil && version != "" || obj != nil && (obj.Version != version || obj.Key() != key) {
					t.Errorf("%s: %v, want version %q", key, obj, version)
				}
			}
			put("a", "1")
			holds("shop/a", "1")
			put("c", "2")
			holds("shop/c", "2")
			put("c", "3")
			holds("shop/c", "3")
			remove("a", "4")
			holds("shop/a", "")
			put("a", "5")
			put("e", "6")
			holds("shop/b", "")
			testkit.Want(t, keys(t, ix), "shop/a@5", "shop/c@3", "shop/e@6")
		})
	}
}
