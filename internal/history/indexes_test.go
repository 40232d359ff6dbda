package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

// indexedPod is a version of a pod with an owner and a node, seconds behind the beginning.
func indexedPod(name, uid string, op event.Op, second int, owner, node string) *event.Event {
	e := podVersion(0, 100+second, 0, time.Unix(1_790_000_000+int64(second), 0).UTC(), "")
	e.Name, e.UID, e.Op, e.PartitionKey = name, uid, op, "pods/shop/"+name
	e.ID, e.Type, e.Subject = uid+fmt.Sprint(second), "dev.kubebridge.resource."+string(op), "api/v1/namespaces/shop/pods/"+name
	if op == event.Deleted {
		e.Sequence += ".deleted"
	}
	data := strings.ReplaceAll(string(e.Data), `"web-0"`, `"`+name+`"`)
	data = strings.Replace(data, `"uid":"`+name+`"`, `"uid":"`+uid+`","ownerReferences":[{"uid":"`+owner+`"}]`, 1)
	e.Data = []byte(strings.Replace(data, `"spec":{`, `"spec":{"nodeName":"`+node+`",`, 1))
	return e
}

// had returns what a history says of a value from one second to another.
func had(t *testing.T, db *history.DB, by *query.ByIndex, since, until int) (list []string) {
	t.Helper()
	at := func(second int) time.Time { return time.Unix(1_790_000_000+int64(second), 0) }
	for p, err := range db.Questions.Objects.ValueSpans(db.Questions.Resources.Units(), by, at(since), at(until)) {
		testkit.OK(t, err)
		end := "now"
		if p.Span.Until > 0 {
			end = fmt.Sprint(int(p.Span.Until) - 1_790_000_000)
		}
		list = append(list, fmt.Sprintf("%s %s %d-%s", p.Name, p.UID, int(p.Span.From)-1_790_000_000, end))
	}
	slices.Sort(list)
	return list
}

// A span begins with the first version that has the value, and ends with the object or the value.
func TestIndexSpans(t *testing.T) {
	for name, cached := range map[string]int{"with the last versions in memory": 0, "without": 1} {
		t.Run(name, func(t *testing.T) {
			db, err := history.Open(history.Options{Dir: t.TempDir(), LastVersionsBytes: cached})
			testkit.OK(t, err)
			defer func() { testkit.OK(t, db.Close()) }()
			events := []*event.Event{
				indexedPod("a", "a1", event.Added, 10, "o1", ""), indexedPod("a", "a1", event.Updated, 20, "o1", "n1"),
				indexedPod("b", "b1", event.Added, 30, "o1", "n1"), indexedPod("a", "a1", event.Updated, 40, "o1", "n1"),
				indexedPod("a", "a1", event.Deleted, 50, "o1", "n1"), indexedPod("a", "a2", event.Added, 60, "o1", "n1"),
				indexedPod("c", "c1", event.Added, 70, "o1", "n2"), indexedPod("c", "c1", event.Updated, 80, "o2", "n2"),
			}
			for _, e := range events {
				_, err := db.Writer.Append(t.Context(), []*event.Event{e})
				testkit.OK(t, err)
			}
			adopted := "c c1 70-80"
			if cached == 1 {
				adopted = "c c1 70-now" // the value before was not at hand: who reads the version finds another
			}
			testkit.Want(t, had(t, db, query.ByOwner("o1"), 0, 100), "a a1 10-50", "a a2 60-now", "b b1 30-now", adopted)
			testkit.Want(t, had(t, db, query.ByNode("n1"), 0, 100), "a a1 20-50", "a a2 60-now", "b b1 30-now")
			testkit.Want(t, had(t, db, query.ByNode("n1"), 51, 59), "b b1 30-now")
			testkit.Want(t, had(t, db, query.ByNode("n1"), 0, 19))
			testkit.Want(t, had(t, db, query.ByOwner("o2"), 0, 100), "c c1 80-now")
			testkit.Want(t, had(t, db, query.ByOwner("o3"), 0, 100))
			// Late ones make a span longer, and never end one.
			_, err = db.Writer.Append(t.Context(), []*event.Event{
				indexedPod("b", "b1", event.Added, 5, "o1", "n1"), indexedPod("a", "a0", event.Deleted, 4, "o1", "n1"),
			})
			testkit.OK(t, err)
			testkit.Want(t, had(t, db, query.ByNode("n1"), 0, 100), "a a1 20-50", "a a2 60-now", "b b1 5-now")
		})
	}
}

// A uid may be any text.
func TestIndexOfLongValue(t *testing.T) {
	db := openDir(t, t.TempDir())
	owner := strings.Repeat("o", 2000)
	_, err := db.Writer.Append(t.Context(), []*event.Event{indexedPod("a", "a1", event.Added, 10, owner, "n1")})
	testkit.OK(t, err)
	testkit.Want(t, had(t, db, query.ByOwner(owner), 0, 100), "a a1 10-now")
	for v, err := range db.Questions.Objects.State(query.StateQuery{Units: db.Questions.Resources.Units(), Namespace: "*", By: query.ByOwner(owner)}) {
		testkit.OK(t, err)
		if v.Event.Name != "a" {
			t.Errorf("found %s", v.Event.Name)
		}
	}
}

// Retention removes the spans of what ended before the horizon, and no others.
func TestIndexRetention(t *testing.T) {
	dir := t.TempDir()
	db := openDir(t, dir)
	ended := indexedPod("lost", "l1", event.Deleted, 200, "", "")
	ended.Data = nil // the value is not at hand
	_, err := db.Writer.Append(t.Context(), []*event.Event{
		indexedPod("a", "a1", event.Added, 10, "o1", "n1"), indexedPod("a", "a1", event.Deleted, 100, "o1", "n1"),
		indexedPod("b", "b1", event.Added, 20, "o1", "n1"),
		indexedPod("c", "c1", event.Added, 30, "o1", "n1"), indexedPod("c", "c1", event.Deleted, 9000, "o1", "n1"),
		indexedPod("lost", "l1", event.Added, 40, "o1", "n1"),
	})
	testkit.OK(t, err)
	testkit.OK(t, db.Close())
	db = openDir(t, dir)
	_, err = db.Writer.Append(t.Context(), []*event.Event{ended, indexedPod("b", "b1", event.Updated, 10_000, "o1", "n1")})
	testkit.OK(t, err)
	testkit.Want(t, had(t, db, query.ByNode("n1"), 0, 20_000), "a a1 10-100", "b b1 20-now", "c c1 30-9000", "lost l1 40-now")
	testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: 5000 * time.Second}, time.Unix(1_790_010_000, 0)))
	testkit.Want(t, had(t, db, query.ByNode("n1"), 0, 20_000), "b b1 20-now", "c c1 30-9000")
	testkit.Want(t, had(t, db, query.ByOwner("o1"), 0, 20_000), "b b1 20-now", "c c1 30-9000")
}
