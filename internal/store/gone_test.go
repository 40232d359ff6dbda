package store_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestGone has an inferred delete announced, and the process die before it is settled.
func TestGone(t *testing.T) {
	db := openDB(t, t.TempDir())
	first := newIndexer(t, db)
	a := life(t, "a", "one", "5")
	settle(t, db, first, "", map[resource.Key]store.NewState{"shop/a": live(a, 1)})
	announced := store.InferredDelete{UID: "one", Version: "7", AsOf: "20", Epoch: 300}
	testkit.OK(t, first.Announcements().Announce([]store.Announcement{{Key: "shop/a", Gone: &announced, Seq: 2}}))

	ix := newIndexer(t, db)
	for name, test := range map[string]struct{ gone, want store.InferredDelete }{
		"a later list": {
			store.InferredDelete{UID: "one", Version: "7", AsOf: "30", Epoch: 300}, announced,
		},
		"a list that knows an earlier state": {
			store.InferredDelete{UID: "one", Version: "5", AsOf: "30", Epoch: 300}, announced,
		},
		"another object of the name": {
			store.InferredDelete{UID: "two", Version: "7", AsOf: "30", Epoch: 300},
			store.InferredDelete{UID: "two", Version: "7", AsOf: "30", Epoch: 300},
		},
		"another history": {
			store.InferredDelete{UID: "one", Version: "7", AsOf: "30", Epoch: 301},
			store.InferredDelete{UID: "one", Version: "7", AsOf: "30", Epoch: 301},
		},
		"a later state, which left a selector again": {
			store.InferredDelete{UID: "one", Version: "25", AsOf: "30", Epoch: 300},
			store.InferredDelete{UID: "one", Version: "25", AsOf: "30", Epoch: 300},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ix.Announcements().Owed("shop/a", test.gone); got != test.want {
				t.Errorf("owed is %+v, want %+v", got, test.want)
			}
		})
	}
	t.Run("it is no object that was added", func(t *testing.T) {
		testkit.Want(t, left(ix, "shop/a"))
	})
	t.Run("it stays when bodies are rewritten", func(t *testing.T) {
		same := func(b []byte) ([]byte, error) { return b, nil }
		testkit.OK(t, ix.Rewrite(same, same))
		if got := newIndexer(t, db).Announcements().Owed("shop/a", announced); got != announced {
			t.Errorf("owed is %+v, want %+v", got, announced)
		}
	})
	t.Run("it goes when the delete is settled", func(t *testing.T) {
		ix.Announcements().Meet("shop/a", "one", "20", 1)
		settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": dead(a, "20", 1)})
		later := store.InferredDelete{UID: "one", Version: "7", AsOf: "30", Epoch: 300}
		if got := newIndexer(t, db).Announcements().Owed("shop/a", later); got != later {
			t.Errorf("owed is %+v, want %+v", got, later)
		}
	})
}
