package history_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestListedVersion(t *testing.T) {
	events := timed(t, 29, 10, 5)
	db := openDir(t, t.TempDir())
	listed := func() uint64 {
		t.Helper()
		version, err := db.Questions.Coverage.ListedVersion(db.Questions.Resources.Units())
		testkit.OK(t, err)
		return version
	}
	versions := []uint64{0} // of the lists
	for i := range events {
		_, err := db.Writer.Append(t.Context(), pointers(events[i:i+1]))
		testkit.OK(t, err)
		if !events[i].AboutInformer() {
			continue
		}
		version, err := strconv.ParseUint(events[i].ResourceVersion, 10, 64)
		testkit.OK(t, err)
		if versions = append(versions, version); len(versions) == 2 && listed() != 0 {
			t.Errorf("%d before each unit has a list", listed())
		}
	}
	if got := listed(); got != versions[1] || len(versions) != 3 {
		t.Errorf("%d, of lists at %v", got, versions)
	}
	t.Run("it is of the last list of each namespace", func(t *testing.T) {
		list := func(namespace string, version int) *event.Event {
			e := events[slices.IndexFunc(events, func(e event.Event) bool { return e.AboutInformer() })]
			e.Resource, e.Namespace, e.ResourceVersion = "secrets", namespace, strconv.Itoa(version)
			e.ID, e.Time = namespace+e.ResourceVersion, e.Time.Add(time.Duration(version)*time.Second)
			return &e
		}
		_, err := db.Writer.Append(t.Context(), []*event.Event{list("a", 10), list("b", 20), list("a", 30)})
		testkit.OK(t, err)
		units := slices.DeleteFunc(db.Questions.Resources.Units(), func(u *record.Unit) bool { return u.Resource != "secrets" })
		version, err := db.Questions.Coverage.ListedVersion(units)
		testkit.OK(t, err)
		if version != 20 || len(units) != 1 {
			t.Errorf("got %d", version)
		}
	})
}
