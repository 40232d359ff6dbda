package history_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestTimeline(t *testing.T) {
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	pod := func(version int, status string) *event.Event {
		e := podVersion(1, version, 0, began.Add(time.Duration(version)*time.Second), "")
		const object = `{"metadata":{"name":"web-1","resourceVersion":"%d"},"status":{%s}}`
		e.Data = fmt.Appendf(nil, object, version, status)
		return e
	}
	changed := func(t *testing.T, db *history.DB) (rows []string) {
		t.Helper()
		for e, err := range db.Questions.Timeline.Entries("prod", "shop", began, time.Time{}, nil) {
			testkit.OK(t, err)
			row := e.Event.ResourceVersion
			for _, c := range e.Changes {
				row += fmt.Sprintf(" %s %s→%s", c.Path, c.Old, c.New)
				if c.Omitted {
					row += "…"
				}
			}
			if e.More > 0 {
				row += fmt.Sprintf(" and %d", e.More)
			}
			rows = append(rows, row)
		}
		return rows
	}
	t.Run("it reads no versions", func(t *testing.T) {
		dir := t.TempDir()
		db, err := history.Open(history.Options{Dir: dir})
		testkit.OK(t, err)
		_, err = db.Writer.Append(t.Context(), []*event.Event{pod(1, `"a":1`), pod(2, `"a":2`)})
		testkit.OK(t, errors.Join(err, db.Close()))
		options := &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatValueSeparation}
		raw, err := pebble.Open(dir, options)
		testkit.OK(t, err)
		testkit.OK(t, errors.Join(raw.DeleteRange([]byte("V"), []byte("W"), pebble.Sync), raw.Close()))
		if got := changed(t, openDir(t, dir)); !slices.Equal(got, []string{"1", "2 status.a 1→2"}) {
			t.Errorf("%q", got)
		}
	})
	t.Run("a version that comes late changes what the next one changed", func(t *testing.T) {
		want := []string{"1", "2 status.a 1→2", "3 status.a 2→3", "4 status.a 3→4"}
		for _, batches := range [][]int{
			{1, 2, 3, 4}, {1, 0, 4, 3, 2}, {1, 4, 0, 2, 3}, {4, 3, 0, 2, 0, 1}, {1, 3, 4, 2}, {1, 2, 4, 0, 3},
		} {
			dir := t.TempDir()
			var batch []*event.Event
			store := func() {
				db, err := history.Open(history.Options{Dir: dir})
				testkit.OK(t, err)
				_, err = db.Writer.Append(t.Context(), batch)
				testkit.OK(t, errors.Join(err, db.Close()))
				batch = nil
			}
			for _, version := range batches {
				if version == 0 { // a batch ends, and what was in memory is gone
					store()
					continue
				}
				batch = append(batch, pod(version, fmt.Sprintf(`"a":%d`, version)))
			}
			store()
			if got := changed(t, openDir(t, dir)); !slices.Equal(got, want) {
				t.Errorf("%v: %q", batches, got)
			}
		}
	})
	t.Run("long values are omitted, and many fields counted", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		var first, second []string
		for i := range 40 {
			first = append(first, fmt.Sprintf(`"f%d":1`, i))
			second = append(second, fmt.Sprintf(`"f%d":2`, i))
		}
		long := `"text":"` + strings.Repeat("x", 100) + `"`
		_, err := db.Writer.Append(t.Context(), []*event.Event{
			pod(1, `"text":"x"`), pod(2, long), pod(3, strings.Join(first, ",")), pod(4, strings.Join(second, ",")),
		})
		testkit.OK(t, err)
		got := changed(t, db)
		if got[1] != "2 status.text →…" || strings.Count(got[3], "1→2") != 32 || !strings.HasSuffix(got[3], " and 8") {
			t.Errorf("%q", got)
		}
	})
	t.Run("retention does not break what was stored around a late version", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		pad := `"pad":"` + strings.Repeat("x", 500) + `"`
		at := func(version int) *event.Event {
			e := pod(version, fmt.Sprintf(`"a":%d,%s`, version, pad))
			e.Time = began.Add(time.Duration(version) * 10 * time.Minute)
			return e
		}
		// 3 would be a difference to 1
		_, err := db.Writer.Append(t.Context(), []*event.Event{at(1), at(3), at(2)})
		testkit.OK(t, err)
		testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: 5 * time.Minute}, began.Add(30*time.Minute)))
		n := 0
		o := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: "web-1"}
		for v, err := range db.Questions.Objects.Versions(o, time.Time{}, time.Time{}) {
			testkit.OK(t, err)
			if n++; !strings.Contains(string(v.Event.Data), fmt.Sprintf(`"a":%s,`, v.Event.ResourceVersion)) {
				t.Errorf("version %s is %s", v.Event.ResourceVersion, v.Event.Data)
			}
		}
		if n != 2 {
			t.Errorf("%d versions", n)
		}
	})
	t.Run("all namespaces and resources are in the order of time", func(t *testing.T) {
		db := openDir(t, t.TempDir())
		random := rand.New(rand.NewPCG(1, 2))
		const events = 40_000 // more than are sorted at once
		var batch []*event.Event
		for version := range events {
			at := began.Add(time.Duration(version) * time.Millisecond)
			e := podVersionIn(fmt.Sprint("n", random.IntN(50)), version%100, version+1, 0, at, "")
			e.Resource = []string{"pods", "services", "configmaps"}[random.IntN(3)]
			batch = append(batch, e)
		}
		_, err := db.Writer.Append(t.Context(), batch)
		testkit.OK(t, err)
		want := 1
		for e, err := range db.Questions.Timeline.Entries("prod", "*", began, time.Time{}, nil) {
			testkit.OK(t, err)
			if e.Number() != uint64(want) {
				t.Fatalf("version %d, want %d", e.Number(), want)
			}
			want++
		}
		if want != events+1 {
			t.Errorf("%d entries", want-1)
		}
		for e, err := range db.Questions.Timeline.NewestFirst("prod", "*", began, time.Time{}, nil, nil) {
			testkit.OK(t, err)
			if want--; e.Number() != uint64(want) {
				t.Fatalf("newest first: version %d, want %d", e.Number(), want)
			}
		}
		if want != 1 {
			t.Errorf("%d entries are missing", want-1)
		}
	})
}
