package store_test

import (
	"errors"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// openMeta opens a unit's records, as they are on disk.
func openMeta(t *testing.T, db *store.DB, scope string) (*store.Indexer, *store.Meta) {
	t.Helper()
	ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods, Scope: scope})
	testkit.OK(t, err)
	return ix, ix.Meta()
}

func wantEpoch(t *testing.T, m *store.Meta, want store.Epoch) {
	t.Helper()
	got, err := m.Epoch()
	testkit.OK(t, err)
	diverged, err := m.Diverged()
	testkit.OK(t, err)
	if got != want || diverged != want.Open {
		t.Errorf("epoch %+v, diverged %t, want %+v", got, diverged, want)
	}
}

func TestMeta(t *testing.T) {
	t.Run("an epoch is open until the watermark is of it", func(t *testing.T) {
		db := openDB(t, "")
		ix, m := openMeta(t, db, "")
		commit := func(version resource.Version, epoch int) {
			b := db.NewBatch()
			b.SetPosition(ix, version, epoch)
			testkit.OK(t, b.Commit())
		}
		commit("10", 0)
		testkit.OK(t, m.SetDiverged())
		for range 2 { // the same rewind, met again after a crash
			e, err := m.BeginEpoch()
			if want := (store.Epoch{Number: 1, Open: true}); e != want || err != nil {
				t.Fatalf("began %+v, %v", e, err)
			}
			wantEpoch(t, m, store.Epoch{Number: 1, Open: true})
		}
		ix, m = openMeta(t, db, "another") // which forgets the position
		wantEpoch(t, m, store.Epoch{Number: 1, Open: true})
		commit("5", 1)
		wantEpoch(t, m, store.Epoch{Number: 1})
		ix, m = openMeta(t, db, "")
		wantEpoch(t, m, store.Epoch{Number: 1})
		if p, err := m.Position(); p.Version != "" || err != nil {
			t.Errorf("it resumes at %+v, %v", p, err)
		}
		if n := m.Selection(); n != 2 {
			t.Errorf("the selection was another %d times", n)
		}
		testkit.OK(t, m.AdoptEpoch(4))
		wantEpoch(t, m, store.Epoch{Number: 4})
		testkit.OK(t, m.SetDiverged())
		if e, err := m.BeginEpoch(); e.Number != 5 || err != nil {
			t.Errorf("began %+v, %v", e, err)
		}
	})
	t.Run("what one has written another leaves as it is", func(t *testing.T) {
		db := openDB(t, "")
		_, m := openMeta(t, db, "")
		testkit.OK(t, errors.Join(m.SetRedaction("r"), m.EndList("7"), m.AdoptSelection(2),
			m.AdoptSelection(1), m.SetGapOwed(), m.SetSinkEpochs("lake", 3)))
		_, m = openMeta(t, db, "")
		redaction, err := m.Redaction()
		since, failed := m.Since()
		owed, _, errOwed := m.GapOwed()
		epochs, errEpochs := m.SinkEpochs("lake")
		testkit.OK(t, errors.Join(err, failed, errOwed, errEpochs))
		if redaction != "r" || since != "7" || m.Selection() != 2 || !owed || epochs != 3 {
			t.Errorf("%s, %s, %d, %t, %d", redaction, since, m.Selection(), owed, epochs)
		}
		testkit.OK(t, m.BeginList())
		if since, err := m.Since(); since != "" || err != nil {
			t.Errorf("during a list it has everything since %s, %v", since, err)
		}
	})
}
