package changelog_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestFront has the objects of a version of which more may follow, once everything is acked and
// committed, and nothing in all other cases.
func TestFront(t *testing.T) {
	place := func(r *rig, kind changelog.MarkKind, version int, key resource.Key) {
		m := changelog.Mark{Kind: kind, Version: resource.Version(fmt.Sprint(version)), Key: key}
		r.Rank(nil, m)
	}
	want := func(r *rig, version string, objects ...resource.Key) {
		t.Helper()
		front := r.Delivered().NewestVersion
		if version == "" {
			if front != nil {
				t.Errorf("front %v, want none", *front)
			}
			return
		}
		var digests []uint64
		for _, key := range objects {
			digests = append(digests, key.Digest())
		}
		switch {
		case front == nil:
			t.Errorf("no front, want version %s", version)
		case string(front.Version) != version || !slices.Equal(front.Objects, digests):
			t.Errorf("front %v, want version %s of %v", *front, version, objects)
		}
	}
	r := open(t, openDB(t), "log")
	commit := func() { t.Helper(); testkit.OK(t, r.Commit()) }
	place(r, changelog.ListEnd, 10, "")
	commit()
	want(r, "")

	place(r, changelog.Event, 11, "a")
	want(r, "11", "a") // the watermark stays at 10, so there is nothing to commit
	place(r, changelog.Event, 11, "b")
	want(r, "11", "a", "b")

	place(r, changelog.Event, 12, "a") // completes 11
	want(r, "")
	commit()
	want(r, "12", "a")

	e := r.entry("c", 13, 0b11)
	r.Rank([]*changelog.Entry{e}, changelog.Mark{Kind: changelog.Event, Version: "13", Key: "c"})
	commit()
	want(r, "") // it is not in the log yet
	r.Append([]*changelog.Entry{e})
	for cursor := range 2 {
		want(r, "") // a listener has not acked it
		at := r.read(cursor, 1)[0].Position
		r.Cursor(cursor).Ack([]changelog.Ack{{At: at}})
	}
	commit()
	want(r, "13", "c")

	place(r, changelog.Bookmark, 14, "")
	commit()
	want(r, "")

	place(r, changelog.Event, 15, "") // of which object is not known
	place(r, changelog.Event, 15, "a")
	commit()
	want(r, "")
	place(r, changelog.Event, 16, "a")
	commit()
	want(r, "16", "a")
	for i := range 20 {
		place(r, changelog.Event, 16, resource.Key(fmt.Sprint("p", i)))
	}
	want(r, "") // too many
}
