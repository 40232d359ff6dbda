package processor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// headers reads changes of one object: a letter for what each is (Added, Updated, Deleted, Synced,
// Quarantined), and a "!" behind one that the sink may have. Their positions count from 1. Each
// added one is of another object of that name.
func headers(changes string) (found []changelog.Header) {
	uid := "u0"
	for at, change := range strings.Fields(changes) {
		h := changelog.Header{Position: changelog.Position(at + 1), Key: "shop/a"}
		h.Op = map[byte]event.Op{
			'a': event.Added, 'u': event.Updated, 'd': event.Deleted, 's': event.Synced, 'q': event.Quarantined,
		}[change[0]]
		if h.Op == event.Added {
			uid = fmt.Sprint("u", at+1)
		}
		if h.UID = uid; h.Op == event.Quarantined {
			h.Kind = changelog.OfQuarantined
		}
		h.Tried = strings.HasSuffix(change, "!")
		found = append(found, h)
	}
	return found
}

// describe is the place of an event, with that of the change that it begins with, and "+" where it
// is an Added.
func describe(p *pendingEvent) string {
	text := fmt.Sprint(p.last)
	if p.first != p.last {
		text = fmt.Sprint(p.first, "-", p.last)
	}
	if p.added {
		text += "+"
	}
	return text
}

// TestCollapse has the changes of one object become the events that say what is still of use.
func TestCollapse(t *testing.T) {
	for _, c := range []struct {
		changes        string
		keepFirst      bool
		want, needless string
	}{
		{changes: "u", want: "1"},
		{changes: "u u u", want: "3", needless: "1 2"},
		{changes: "a u", want: "1-2+"},
		{changes: "a u u", want: "1-3+", needless: "2"},
		{changes: "u u u", keepFirst: true, want: "1-3", needless: "2"},
		{changes: "u u d", keepFirst: true, want: "3", needless: "2 1"},
		{changes: "u d", want: "2", needless: "1"},
		{changes: "a u d", want: "3", needless: "2 1"},
		{changes: "d a u", want: "1 2-3+"},
		{changes: "u d a", want: "2 3+", needless: "1"},
		{changes: "u a", want: "1 2+"}, // its delete was not seen
		{changes: "s u", want: "2", needless: "1"},
		{changes: "s s", want: "2", needless: "1"},
		{changes: "u s", want: "1", needless: "2"},
		{changes: "d s", want: "1 2"},
		{changes: "q u u", want: "1 3", needless: "2"},
		{changes: "u q q u", want: "1 2 3 4"},
		{changes: "u! u u", want: "1 3", needless: "2"}, // what the sink may have is sent as it was
		{changes: "u! u!", want: "2", needless: "1"},
	} {
		t.Run(fmt.Sprint(c.changes, " ", c.keepFirst), func(t *testing.T) {
			q := newLatestQueue(100, c.keepFirst)
			var needless, events []string
			for _, h := range headers(c.changes) {
				for _, at := range q.queue(&h) {
					needless = append(needless, fmt.Sprint(at))
				}
			}
			for taken := q.pop(9); len(taken) > 0; taken = q.pop(9) {
				events = append(events, describe(&taken[0]))
				q.done(taken[0].object)
			}
			testkit.Want(t, events, strings.Fields(c.want)...)
			testkit.Want(t, needless, strings.Fields(c.needless)...)
			if len(q.objects) != 0 || q.count != 0 {
				t.Errorf("%d objects and %d events are left", len(q.objects), q.count)
			}
		})
	}
}

// TestLatestQueue has what is taken, and when no more is read.
func TestLatestQueue(t *testing.T) {
	add := func(q *latestQueue, names ...string) {
		for _, name := range names {
			q.queue(&changelog.Header{Key: resource.Key(name), Op: event.Deleted})
		}
	}
	keys := func(taken []pendingEvent) (keys []string) {
		for _, p := range taken {
			keys = append(keys, string(p.object.key))
		}
		return keys
	}
	t.Run("an object has one event with the publisher, and gets in line again", func(t *testing.T) {
		q := newLatestQueue(100, false)
		add(q, "a", "a", "b")
		first := q.pop(1)
		testkit.Want(t, keys(first), "a")
		testkit.Want(t, keys(q.pop(9)), "b")
		testkit.Want(t, keys(q.pop(9)))
		q.done(first[0].object)
		testkit.Want(t, keys(q.pop(9)), "a")
	})
	t.Run("it is full until half of it is taken", func(t *testing.T) {
		q := newLatestQueue(4, false)
		var full []bool
		for _, name := range []string{"a", "b", "c", "d"} {
			add(q, name)
			full = append(full, q.full())
		}
		for range 3 {
			q.pop(1)
			full = append(full, q.full())
		}
		testkit.Want(t, full, false, false, false, true, true, false, false)
	})
}
