package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// life makes a pod of one of the lives of a name.
func life(t *testing.T, name, uid, version string) *resource.Object {
	t.Helper()
	obj := pod(t, name, version)
	obj, err := resource.Parse([]byte(strings.Replace(string(obj.Raw), "uid-"+name, uid, 1)), resource.ParseOptions{Type: pods})
	testkit.OK(t, err)
	return obj
}

func left(ix *store.Indexer, key resource.Key) (out []string) {
	for _, rec := range ix.Announcements().Left(key) {
		out = append(out, rec.UID+"@"+string(rec.Version))
	}
	return out
}

// What was announced is kept until it is settled or met.
func TestAnnouncement(t *testing.T) {
	db := openDB(t, t.TempDir())
	first := newIndexer(t, db)
	a, b, c := life(t, "a", "one", "5"), life(t, "a", "two", "7"), life(t, "c", "three", "9")
	testkit.OK(t, first.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: a, Seq: 1, Unknown: true}}))
	testkit.OK(t, first.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: b, Seq: 3}, {Key: "shop/c", Object: c, Seq: 4, Unknown: true}}))
	testkit.Want(t, left(first, "shop/a")) // they are this run's
	if empty, err := first.Empty(); empty || err != nil {
		t.Errorf("Empty: %v, %v; an object was announced", empty, err)
	}

	second := newIndexer(t, db) // as after a crash
	testkit.Want(t, left(second, "shop/a"), "one@5", "two@7")
	testkit.Want(t, left(second, "shop/c"), "three@9")
	for key, objects := range map[resource.Key][]*resource.Object{"shop/a": {a, b}, "shop/c": {c}} {
		if _, found, err := second.Get(key); found || err != nil {
			t.Errorf("%s is known: %v, %v", key, found, err)
		}
		for _, obj := range objects {
			last, err := second.Announcements().LeftObject(key, obj.UID)
			testkit.OK(t, err)
			if last == nil || string(last.Raw) != string(obj.Raw) {
				t.Errorf("the last state of %s is %v", obj.UID, last)
			}
		}
	}
	second.Announcements().Meet("shop/a", "one", "", 1)
	testkit.Want(t, left(second, "shop/a"), "two@7")
	settle(t, db, second, "", map[resource.Key]store.NewState{"shop/a": dead(a, "6", 2), "shop/c": live(c, 5)})
	// settled by a change of another object, as far as it knows
	testkit.Want(t, left(second, "shop/c"), "three@9")

	third := newIndexer(t, db)
	testkit.Want(t, left(third, "shop/a"), "two@7")
	third.Announcements().Meet("shop/c", "three", "", 1)
	settle(t, db, third, "", map[resource.Key]store.NewState{"shop/c": live(c, 1)})
	testkit.Want(t, left(newIndexer(t, db), "shop/c"))
	settled, err := third.Object("shop/c")
	testkit.OK(t, err)
	if settled == nil || string(settled.Raw) != string(c.Raw) {
		t.Errorf("settled is %v", settled)
	}
}

// An object that left the selection and came again is announced again: that what was reported
// before is settled does not take that away.
func TestAnnouncementRepeated(t *testing.T) {
	db := openDB(t, t.TempDir())
	ix := newIndexer(t, db)
	first, again := life(t, "a", "one", "5"), life(t, "a", "one", "9")
	testkit.OK(t, ix.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: first, Seq: 1, Unknown: true}, {Key: "shop/a", Object: again, Seq: 3}}))
	settled := func(s store.NewState, want1 ...string) *store.Indexer {
		settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": s})
		after := newIndexer(t, db) // as after a crash
		testkit.Want(t, left(after, "shop/a"), want1...)
		return after
	}
	testkit.Want(t, left(newIndexer(t, db), "shop/a"), "one@9")
	after := settled(dead(first, "7", 2), "one@9")
	last, err := after.Announcements().LeftObject("shop/a", "one")
	testkit.OK(t, err)
	if last == nil || string(last.Raw) != string(again.Raw) {
		t.Errorf("the last state is %v", last)
	}
	settled(live(again, 3))
}

// The third announcement of an object outlives what settles the first two, in whatever order, and
// another run.
func TestAnnouncedThreeTimes(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}, {1}} {
		db := openDB(t, t.TempDir())
		ix := newIndexer(t, db)
		lives := []*resource.Object{life(t, "a", "one", "5"), life(t, "a", "one", "9"), life(t, "a", "one", "13")}
		for i, object := range lives {
			testkit.OK(t, ix.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: object, Seq: uint64(2*i + 1), Unknown: i == 0}}))
		}
		for _, i := range order {
			settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": dead(lives[i], resource.Version(fmt.Sprint(7+4*i)), uint64(2*i+2))})
			ix = newIndexer(t, db) // as after a crash
			for n, met := range lives {
				ix.Announcements().Meet("shop/a", "one", met.Version, uint64(2*n+1))
			}
		}
		after := newIndexer(t, db)
		testkit.Want(t, left(after, "shop/a"), "one@13")
		last, err := after.Announcements().LeftObject("shop/a", "one")
		testkit.OK(t, err)
		if last == nil || string(last.Raw) != string(lives[2].Raw) {
			t.Errorf("settled in the order %v, the last state is %v", order, last)
		}
	}
}

// The body lies in its place since the announcement. What another life of the name has written
// there since is not taken for it.
func TestAnnouncedBodyRewritten(t *testing.T) {
	db := openDB(t, t.TempDir())
	ix := newIndexer(t, db)
	a, b := life(t, "a", "one", "5"), life(t, "a", "two", "7")
	testkit.OK(t, ix.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: b, Seq: 3, Unknown: true}}))
	settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": live(a, 2)})
	if last, err := ix.Announcements().LeftObject("shop/a", "two"); last != nil || err != nil {
		t.Errorf("the last state of two is %s, %v", last.Raw, err)
	}
	settle(t, db, ix, "", map[resource.Key]store.NewState{"shop/a": live(b, 3)})
	last, err := ix.Object("shop/a")
	testkit.OK(t, err)
	if last == nil || last.UID != "two" {
		t.Errorf("settled is %v", last)
	}
}

// A body that is in its place is not written again.
func TestAnnouncedBodyInPlace(t *testing.T) {
	const size = 4 << 10
	db := openDB(t, "")
	ix := newIndexer(t, db)
	text := make([]byte, size/2)
	rand.NewChaCha8([32]byte{}).Read(text)
	announced, later := pod(t, "a", "5", fmt.Sprintf(`,"x":"%x"`, text)), pod(t, "b", "6", fmt.Sprintf(`,"x":"%x"`, text))
	testkit.OK(t, ix.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: announced, Seq: 1, Unknown: true}, {Key: "shop/b", Object: pod(t, "b", "5"), Seq: 2, Unknown: true}}))
	for key, obj := range map[resource.Key]*resource.Object{"shop/a": announced, "shop/b": later} {
		batch := db.NewBatch()
		batch.Settle(ix, key, live(obj, 2))
		if written, again := batch.Len(), obj == later; written > size/2 != again {
			t.Errorf("%s: %d bytes are committed", key, written)
		}
		testkit.OK(t, batch.Commit())
	}
	for _, key := range []resource.Key{"shop/a", "shop/b"} {
		obj, err := ix.Object(key)
		testkit.OK(t, err)
		if obj == nil || !strings.Contains(string(obj.Raw), fmt.Sprintf("%x", text)) {
			t.Errorf("%s is settled as %v", key, obj)
		}
	}
}

// What was announced and not listed is missing.
func TestAnnouncedAndNotListed(t *testing.T) {
	db := openDB(t, "")
	before := newIndexer(t, db)
	var list []store.Announcement
	for i, name := range []string{"gone", "listed", "newer"} {
		version := []string{"5", "6", "60"}[i]
		list = append(list, store.Announcement{Key: resource.Key("shop/" + name), Object: pod(t, name, version), Seq: uint64(i + 1), Unknown: true})
	}
	testkit.OK(t, before.Announcements().Announce(list))
	ix := newIndexer(t, db)
	testkit.OK(t, ix.Listing().Add([]resource.Key{"shop/listed"}))
	missing := func(kind resource.RelistKind) (out []string) {
		for m, err := range ix.Listing().Missing("50", resource.Relist{Kind: kind}) {
			testkit.OK(t, err)
			out = append(out, string(m))
		}
		return out
	}
	testkit.Want(t, missing(resource.RelistGap), "shop/gone")
	testkit.Want(t, missing(resource.RelistRewound), "shop/gone", "shop/newer")
}

// Announcing again writes nothing.
func TestAnnouncementUnchanged(t *testing.T) {
	db := openDB(t, "")
	a := pod(t, "a", "5")
	testkit.OK(t, newIndexer(t, db).Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: a, Seq: 1, Unknown: true}}))
	ix := newIndexer(t, db)
	testkit.OK(t, ix.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: pod(t, "a", "8"), Seq: 1, Unknown: true}}))
	testkit.Want(t, left(ix, "shop/a"), "uid-a@5")
}

// A new object costs its announcement, an fsync of up to 256 of them, and no second body.
func BenchmarkAnnounceAndSettle(b *testing.B) {
	db, ix, obj := benchState(b)
	const objects, together = 1024, 256
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		batch, settled := db.NewBatch(), map[resource.Key]store.NewState{}
		for i := 0; i < objects; i += together {
			var list []store.Announcement
			for j := range together {
				key := resource.Key(fmt.Sprint("shop/pod-", n, "-", i+j))
				list = append(list, store.Announcement{Key: key, Object: obj, Seq: 1, Unknown: true})
				settled[key] = live(obj, 1)
			}
			if err := ix.Announcements().Announce(list); err != nil {
				b.Fatal(err)
			}
		}
		for key, s := range settled {
			batch.Settle(ix, key, s)
		}
		if err := batch.Commit(); err != nil {
			b.Fatal(err)
		}
		ix.Forget(settled)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*objects), "µs/object")
}

// What is reported again after a crash meets what it reported before, not what came later of the
// same object.
func TestAnnouncementOfLaterLife(t *testing.T) {
	db := openDB(t, t.TempDir())
	first := newIndexer(t, db)
	five, seven := life(t, "a", "one", "5"), life(t, "a", "one", "7")
	testkit.OK(t, first.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: five, Seq: 1, Unknown: true}}))
	testkit.OK(t, first.Announcements().Announce([]store.Announcement{{Key: "shop/a", Object: seven, Seq: 3}}))

	second := newIndexer(t, db)
	second.Announcements().Meet("shop/a", "one", "5", 1)
	testkit.Want(t, left(second, "shop/a"), "one@7")
	settle(t, db, second, "", map[resource.Key]store.NewState{"shop/a": dead(five, "6", 2)})
	testkit.Want(t, left(newIndexer(t, db), "shop/a"), "one@7")
}

// TestHostileName has a tenant who names objects like the keys of others. The API server takes any
// character but / and % in the name of a Role.
func TestHostileName(t *testing.T) {
	db := openDB(t, t.TempDir())
	first := newIndexer(t, db)
	name := "victim\x00one\x005"
	hostile := life(t, "a", "two", "7")
	hostile.Name = name
	testkit.OK(t, first.Announcements().Announce([]store.Announcement{
		{Key: resource.Key("shop/" + name), Object: hostile, Seq: 1, Unknown: true},
	}))
	second := newIndexer(t, db)
	testkit.Want(t, left(second, "shop/victim"))
	testkit.Want(t, left(second, resource.Key("shop/"+name)), "two@7")
	last, err := second.Announcements().LeftObject(resource.Key("shop/"+name), "two")
	testkit.OK(t, err)
	if last == nil || last.UID != "two" {
		t.Errorf("its state is %v", last)
	}
}
