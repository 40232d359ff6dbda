package crash_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

func object(uid string, version int) string {
	return fmt.Sprintf(`{"metadata":{"name":"a","namespace":"n","uid":%q,"resourceVersion":"%d"}}`, uid, version)
}

func change(t *testing.T, kind, uid string, version int) truth.Change {
	t.Helper()
	ch := truth.Change{Collection: truth.Core("configmaps", "n"), Type: kind, Raw: json.RawMessage(object(uid, version))}
	if err := json.Unmarshal(ch.Raw, &ch.Object); err != nil {
		t.Fatal(err)
	}
	return ch
}

func published(t *testing.T, kind, id string, version int, data string) read.Event {
	t.Helper()
	e := read.Event{Event: event.New()}
	e.SetID(id)
	e.SetType("dev.kubebridge." + kind)
	for name, value := range map[string]string{
		"apiversion": "v1", "resource": "configmaps", "resourceversion": fmt.Sprint(version), "sequence": fmt.Sprintf("00000000.%020d", version),
		"partitionkey": "configmaps/n/a", "uid": strings.Split(id, "/")[0], "namespace": "n", "name": "a",
	} {
		e.SetExtension(name, value)
	}
	if err := e.SetData("application/json", []byte(data)); err != nil {
		t.Fatal(err)
	}
	return e
}

func about(t *testing.T, op, uid string, version int) read.Event {
	t.Helper()
	id := fmt.Sprintf("%s/%d", uid, version)
	if op == "deleted" {
		id = uid + "/deleted"
	}
	return published(t, "resource."+op, id, version, object(uid, version))
}

func synced(t *testing.T, version int) read.Event {
	t.Helper()
	return published(t, "informer.synced", fmt.Sprint("synced/", version), version, "{}")
}

func gap(t *testing.T, from, to int) read.Event {
	t.Helper()
	return published(t, "informer.gap", fmt.Sprintf("gap/%d/%d", from, to), to, fmt.Sprintf(`{"from":"%d","to":"%d"}`, from, to))
}

// A judge that never complains would pass every bridge.
func TestFindingsNameWhatIsWrong(t *testing.T) {
	seen := []truth.Change{
		change(t, "ADDED", "u", 5), change(t, "MODIFIED", "u", 6), change(t, "DELETED", "u", 7), change(t, "ADDED", "v", 8), change(t, "MODIFIED", "v", 9),
	}
	exist := seen[4:]
	right := []read.Event{
		synced(t, 4), about(t, "added", "u", 5), about(t, "updated", "u", 6), about(t, "deleted", "u", 7), about(t, "added", "v", 8), about(t, "updated", "v", 9),
	}
	without := func(from, to int, instead ...read.Event) []read.Event {
		return slices.Replace(slices.Clone(right), from, to, instead...)
	}
	other := about(t, "updated", "u", 6)
	if err := other.SetData("application/json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	renamed := about(t, "updated", "u", 6)
	renamed.SetID("another")
	for name, c := range map[string]struct {
		events []read.Event
		want   crash.Findings
	}{
		"nothing":                            {right, crash.Findings{Events: 5}},
		"a lost update":                      {without(2, 3), crash.Findings{Events: 4, Lost: 1}},
		"a lost update, reported as a gap":   {without(2, 3, gap(t, 5, 6), synced(t, 6)), crash.Findings{Events: 4, Gaps: 1, InGaps: 1}},
		"a loss after the end of a gap":      {without(2, 3, gap(t, 4, 5), synced(t, 6)), crash.Findings{Events: 4, Gaps: 1, InGaps: 1, PastTo: 1}},
		"a loss after the list":              {without(2, 3, gap(t, 4, 5), synced(t, 5)), crash.Findings{Events: 4, Gaps: 1, Lost: 1}},
		"a loss before a gap":                {without(2, 3, gap(t, 6, 7), synced(t, 7)), crash.Findings{Events: 4, Gaps: 1, Lost: 1}},
		"a second snapshot hides no loss":    {without(2, 3, synced(t, 9)), crash.Findings{Events: 4, Lost: 1}},
		"a lost delete":                      {without(3, 4), crash.Findings{Events: 4, Lost: 1, Ghosts: 1}},
		"a lost delete, reported as a gap":   {without(3, 4, gap(t, 6, 7), synced(t, 7)), crash.Findings{Events: 4, Gaps: 1, InGaps: 1, Ghosts: 1}},
		"a whole life that ends in a gap":    {without(3, 4, gap(t, 4, 7), synced(t, 7)), crash.Findings{Events: 4, Gaps: 1, InGaps: 1, Unreported: 1}},
		"the last update is lost":            {without(5, 6), crash.Findings{Events: 4, Lost: 1, Stale: 4}},
		"it comes again":                     {without(3, 3, about(t, "updated", "u", 6)), crash.Findings{Events: 5, Duplicates: 1}},
		"it comes again, and is another":     {without(3, 3, other), crash.Findings{Events: 5, Duplicates: 1, Altered: 1}},
		"it comes again, by another name":    {without(3, 3, renamed), crash.Findings{Events: 6, Renamed: 1, Reordered: 1}},
		"versions are exchanged":             {without(1, 3, right[2], right[1]), crash.Findings{Events: 5, Reordered: 1}},
		"the delete is before the update":    {without(2, 4, right[3], right[2]), crash.Findings{Events: 5, Reordered: 1}},
		"the next of the name is too early":  {without(3, 5, right[4], right[3]), crash.Findings{Events: 5, Reordered: 1}},
		"the replay ends before the present": {append(slices.Clone(right), right[4]), crash.Findings{Events: 5, Duplicates: 1, Stale: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := crash.Judge(seen, exist, c.events)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want.String() {
				t.Errorf("got  %s\nwant %s\n%v", got, &c.want, got.Problems)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	at := func(op string, version, second int, epoch string) read.Event {
		e := about(t, op, "u", version)
		e.SetTime(time.Unix(int64(second), 0))
		e.SetExtension("sequence", fmt.Sprintf("%s.%020d", epoch, version))
		return e
	}
	const first, second = "00000000", "00000001"
	added, same := at("added", 5, 20, first), at("updated", 6, 20, first)
	for name, c := range map[string]struct {
		events []read.Event
		want   int
	}{
		"ascending, and equal":                 {[]read.Event{added, same, at("deleted", 7, 21, first)}, 0},
		"an update is before what was earlier": {[]read.Event{added, at("updated", 6, 19, first)}, 1},
		"a delete is before what was earlier":  {[]read.Event{added, at("deleted", 7, 19, first)}, 1},
		"one that is too late is no measure":   {[]read.Event{added, at("updated", 6, 19, first), at("updated", 7, 20, first)}, 1},
		"a repeat has the time of the first":   {[]read.Event{added, same, added}, 0},
		"another epoch":                        {[]read.Event{added, at("updated", 6, 19, second)}, 0},
		"an older time in the second epoch":    {[]read.Event{added, at("updated", 6, 19, second), at("updated", 7, 18, second)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := crash.Judge(nil, nil, c.events)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Backwards) != c.want {
				t.Errorf("%q, want %d", got.Backwards, c.want)
			}
		})
	}
}
