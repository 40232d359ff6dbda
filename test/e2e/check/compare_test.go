package check_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var options = check.Options{Cluster: "c", Informers: map[string]string{"configmaps": "i"}, Began: time.Now().Add(-time.Minute), Changed: true}

// writtenAt is when a version was written, a second for each.
func writtenAt(version int) time.Time { return time.Date(2026, 1, 2, 3, 4, version, 0, time.UTC) }

// change is an event of a watch of config maps.
func change(t *testing.T, kind, name, uid string, version int) truth.Change {
	t.Helper()
	at := writtenAt(version).Format(time.RFC3339)
	written := at
	if kind == "DELETED" { // in the last state
		written = writtenAt(version - 1).Format(time.RFC3339)
	}
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"n","uid":%q,"resourceVersion":"%d",`+
		`"creationTimestamp":%q,"managedFields":[{"manager":"m","operation":"Update","time":%q}]},"data":{"v":"%d"}}`,
		name, uid, version, at, written, version)
	ch := truth.Change{Collection: truth.Core("configmaps", "n"), Type: kind, Raw: json.RawMessage(raw)}
	if err := json.Unmarshal(ch.Raw, &ch.Object); err != nil {
		t.Fatal(err)
	}
	return ch
}

// lives are two objects, one after the other, of one name.
func lives(t *testing.T) []truth.Change {
	return []truth.Change{
		change(t, "ADDED", "a", "u1", 9), change(t, "MODIFIED", "a", "u1", 10), change(t, "DELETED", "a", "u1", 11),
		change(t, "ADDED", "a", "u2", 12),
	}
}

// published is what a bridge makes of changes.
func published(t *testing.T, changes []truth.Change) (events []read.Event) {
	t.Helper()
	ops := map[string]string{"ADDED": "added", "MODIFIED": "updated", "DELETED": "deleted"}
	newest := map[string]string{} // version by uid
	for i, ch := range changes {
		m, op := ch.Metadata, ops[ch.Type]
		e := read.Event{Event: event.New(), Place: uint64(i + 1)}
		id := m.UID + "/" + m.ResourceVersion
		e.SetTime(m.ManagedFields[0].Time)
		e.SetExtension("timesource", "managedfields")
		if op == "deleted" {
			id = m.UID + "/deleted"
			e.SetTime(time.Now())
			e.SetExtension("timesource", "observed")
		}
		e.SetID(id)
		e.SetSource("/clusters/c")
		e.SetType("dev.kubebridge.resource." + op)
		e.SetSubject("api/v1/namespaces/n/configmaps/" + m.Name)
		for name, value := range map[string]string{
			"partitionkey": "configmaps/n/" + m.Name, "sequence": "00000000." + strings.Repeat("0", 20-len(m.ResourceVersion)) + m.ResourceVersion,
			"apiversion": "v1", "kind": "ConfigMap", "resource": "configmaps", "namespace": "n", "name": m.Name, "uid": m.UID,
			"resourceversion": m.ResourceVersion, "informer": "i",
		} {
			e.SetExtension(name, value)
		}
		writer := "manager"
		if op == "deleted" {
			writer = "lastmanager"
			e.SetExtension("sequence", e.Attribute("sequence")+".deleted")
		}
		e.SetExtension(writer, "m")
		if op != "deleted" {
			e.SetExtension("manageroperation", "Update")
		}
		if previous := newest[m.UID]; previous != "" {
			e.SetExtension("previous", previous)
			if op == "updated" {
				e.SetExtension("changed", "metadata,data")
			}
		}
		newest[m.UID] = m.ResourceVersion
		data, err := ch.WithoutManagedFields()
		if err != nil {
			t.Fatal(err)
		}
		setData(t, &e, data)
		e.NATSSubject, e.MessageID = "k8s.c.core.v1.configmaps.n."+m.Name+"."+op, "i/"+id
		events = append(events, e)
	}
	return events
}

func setData(t *testing.T, e *read.Event, data []byte) {
	t.Helper()
	if err := e.SetData("application/json", data); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsRightHasNoProblems(t *testing.T) {
	if problems := check.Compare(lives(t), published(t, lives(t)), options); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
}

// Every kind of mistake is a problem.
// A checker that never complains would pass every bridge.
func TestProblemKinds(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(events []read.Event) []read.Event
		want  string
	}{
		"an event is missing":        {func(e []read.Event) []read.Event { return append(e[:1], e[2:]...) }, "is missing"},
		"the delete is missing":      {func(e []read.Event) []read.Event { return append(e[:2], e[3:]...) }, "is missing"},
		"an event comes twice":       {func(e []read.Event) []read.Event { return append(e, e[0]) }, "comes again"},
		"two are exchanged":          {func(e []read.Event) []read.Event { e[0], e[1] = e[1], e[0]; return e }, "another order"},
		"the new one is first":       {func(e []read.Event) []read.Event { e[2], e[3] = e[3], e[2]; return e }, "another order"},
		"an event of nothing":        {func(e []read.Event) []read.Event { e[0].SetID("u9/1"); return e }, "nobody saw"},
		"the payload differs":        {func(e []read.Event) []read.Event { setData(t, &e[0], []byte(`{}`)); return e }, "payload differs"},
		"an attribute differs":       {func(e []read.Event) []read.Event { e[1].SetExtension("kind", "Secret"); return e }, "kind is"},
		"an attribute is too much":   {func(e []read.Event) []read.Event { e[1].SetExtension("inferred", "true"); return e }, "inferred is"},
		"the time differs":           {func(e []read.Event) []read.Event { e[1].SetTime(time.Now()); return e }, "time is"},
		"the time goes back":         {func(e []read.Event) []read.Event { e[0].SetTime(writtenAt(11)); return e }, "is before"},
		"the time has no source":     {func(e []read.Event) []read.Event { e[0].SetExtension("timesource", ""); return e }, "timesource is"},
		"another manager":            {func(e []read.Event) []read.Event { e[0].SetExtension("manager", "n"); return e }, "manager is"},
		"the delete's time is old":   {func(e []read.Event) []read.Event { e[2].SetTime(options.Began.Add(-time.Hour)); return e }, "time is"},
		"the chain is broken":        {func(e []read.Event) []read.Event { e[1].SetExtension("previous", "8"); return e }, "previous is"},
		"another part has changed":   {func(e []read.Event) []read.Event { e[1].SetExtension("changed", "spec"); return e }, `changed is "spec", want "metadata,data"`},
		"no part is named":           {func(e []read.Event) []read.Event { e[1].SetExtension("changed", ""); return e }, `changed is "", want "metadata,data"`},
		"an added object changed":    {func(e []read.Event) []read.Event { e[0].SetExtension("changed", "data"); return e }, `changed is "data", want ""`},
		"the message id differs":     {func(e []read.Event) []read.Event { e[3].MessageID = "x"; return e }, "Nats-Msg-Id"},
		"the subject differs":        {func(e []read.Event) []read.Event { e[3].NATSSubject = "x"; return e }, "NATS subject"},
		"an object is in two lanes":  {func(e []read.Event) []read.Event { e[3].Lane, e[3].Partitions = "t/1", 2; return e }, "has events in"},
		"it is in another partition": {func(e []read.Event) []read.Event { e[0].Lane, e[0].Partitions, e[0].Partition = "t/9", 8, 9; return e }, "in partition 9 of 8"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := check.Compare(lives(t), c.spoil(published(t, lives(t))), options)
			if !strings.Contains(strings.Join(problems, "\n"), c.want) {
				t.Errorf("want a problem with %q, got %q", c.want, problems)
			}
		})
	}
}

// The final state and the order are compared.
func TestFinalStateAndOrder(t *testing.T) {
	exist := truth.Snapshot(lives(t))
	good := published(t, lives(t))
	if problems := append(check.FinalState(exist, good, options), check.Order(good)...); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
	if problems := check.FinalState(exist, good[:3], options); len(problems) != 2 {
		t.Errorf("an object without an event: %v", problems)
	}
	if problems := check.FinalState(nil, good, options); len(problems) != 2 {
		t.Errorf("an object that does not exist: %v", problems)
	}
	early := published(t, lives(t)[:3])
	early[2].SetExtension("sequence", early[0].Attribute("sequence")+".deleted")
	if problems := check.FinalState(nil, early, options); len(problems) != 1 || !strings.Contains(problems[0], "sorted by sequence") {
		t.Errorf("a delete that sorts before an update: %v", problems)
	}
	swapped := []read.Event{good[1], good[0]}
	if problems := check.Order(swapped); len(problems) != 1 {
		t.Errorf("exchanged: %v", problems)
	}
	if problems := check.Order([]read.Event{good[2], good[1]}); len(problems) != 1 {
		t.Errorf("after the delete: %v", problems)
	}
}
