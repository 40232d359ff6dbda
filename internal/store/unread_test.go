package store_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestUnread(t *testing.T) {
	db := openDB(t, t.TempDir())
	ix := newIndexer(t, db)
	a := life(t, "a", "one", "5")
	commit := func(seq uint64) {
		t.Helper()
		settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": live(a, seq)})
	}
	is := func(now, later bool) {
		t.Helper()
		if got := ix.Announcements().Unread("shop/a"); got != now {
			t.Errorf("unread: %v, want %v", got, now)
		}
		if got := newIndexer(t, db).Announcements().Unread("shop/a"); got != later { // as after a crash
			t.Errorf("unread after a restart: %v, want %v", got, later)
		}
	}
	commit(1)
	is(false, false)
	testkit.OK(t, ix.Announcements().MarkUnread("shop/a", "one", 2))
	testkit.OK(t, ix.Announcements().MarkUnread("shop/a", "one", 3))
	is(true, true)
	testkit.Want(t, left(newIndexer(t, db), "shop/a"))
	ix.Announcements().Meet("shop/a", "one", "7", 4) // the next version, which is not settled
	is(false, true)
	testkit.OK(t, ix.Announcements().MarkUnread("shop/a", "one", 5))
	is(true, true)
	commit(4)
	is(true, true) // the second is behind it
	ix.Announcements().Meet("shop/a", "one", "9", 6)
	commit(6)
	is(false, false)
	if empty, err := ix.Empty(); empty || err != nil {
		t.Errorf("Empty: %v, %v", empty, err)
	}
}
