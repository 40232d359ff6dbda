package verify_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/testkit"
)

// check gives the report of a stream that is read from its start.
func check(events []event.Event) *verify.Report {
	c := verify.New(verify.Config{Whole: func() bool { return true }})
	feed(c, events)
	return c.Report()
}

func feed(c *verify.Checker, events []event.Event) {
	for i := range events {
		c.Feed(&events[i], verify.Position{Lane: "K8S", Offset: uint64(i + 1)})
	}
}

func describe(r *verify.Report) string {
	var b strings.Builder
	for _, f := range r.Found {
		fmt.Fprintf(&b, "%s %s %s at %s: %s\n", f.Kind, f.Object, f.Version, f.At, f.What)
	}
	return b.String()
}

func TestClean(t *testing.T) {
	events := testkit.Events(t, 1, 300, 12)
	r := check(events)
	if !r.OK {
		t.Errorf("faults in a clean stream:\n%s", describe(r))
	}
	if r.Events != len(events) || r.Objects != 300 || r.Alive != 300 || r.Repeats != 0 || len(r.Notes) > 0 {
		t.Errorf("report %+v", r)
	}
	for _, x := range r.Resources {
		if x.Chain != verify.ChainChecked || x.Complete == "" || x.Newest <= x.Complete {
			t.Errorf("resource %+v", x)
		}
	}
}

func TestPlantedFaults(t *testing.T) {
	events, planted := testkit.PlantFaults(t, testkit.Events(t, 2, 300, 12), 2)
	if len(planted) != 100 {
		t.Fatalf("%d faults were planted, want 100", len(planted))
	}
	r := check(events)
	found := map[string][]string{}
	for _, f := range r.Found {
		found[f.Object] = append(found[f.Object], string(f.Kind))
	}
	for object, p := range planted {
		if !slices.Contains(found[object], p.Kind) {
			t.Errorf("%s in %s: found %q, want %s", p.What, object, found[object], p.Kind)
		}
		delete(found, object)
	}
	if len(r.Found) != len(planted) {
		t.Errorf("%d faults were found, want one for each that was planted", len(r.Found))
	}
	for object, kinds := range found {
		t.Errorf("%s has no fault, found %q", object, kinds)
	}
	if t.Failed() {
		t.Log(describe(r))
	}
}

// What an object costs, with a name as a pod has it. A stream of more events costs no more.
func TestMemory(t *testing.T) {
	const objects, most = 200_000, 200
	e := event.Event{
		Source: "/clusters/prod", Type: "dev.kubebridge.resource.added", ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Kind: "Pod", Resource: "pods",
			Namespace: "namespace-of-a-team",
		}, Routing: event.Routing{Version: "v1"},
		Informer: "workloads", Op: event.Added, OriginAttributes: event.OriginAttributes{Initial: true},
	}
	c := verify.New(verify.Config{})
	before := testkit.Heap()
	for version := range 3 * objects {
		e.Name = fmt.Sprintf("deployment-%05d-5d78c9869d-x7k2p", version%objects)
		e.UID = fmt.Sprintf("%08x-1234-4321-8000-000000000000", version%objects)
		e.ResourceVersion = fmt.Sprint(version + 1)
		e.ID = e.UID + "/" + e.ResourceVersion
		e.PartitionKey, e.Subject = "pods/"+e.Namespace+"/"+e.Name, "api/v1/namespaces/"+e.Namespace+"/pods/"+e.Name
		e.Sequence = fmt.Sprintf("00000000.%020d", version+1)
		if e.Previous = ""; version >= objects {
			e.Type, e.Op, e.Initial, e.Previous = "dev.kubebridge.resource.updated", event.Updated, false, fmt.Sprint(version+1-objects)
		}
		c.Feed(&e, verify.Position{Lane: "K8S", Offset: uint64(version)})
	}
	each := (testkit.Heap() - before) / objects
	if r := c.Report(); !r.OK || r.Objects != objects {
		t.Fatalf("report %+v\n%s", r, describe(r))
	}
	t.Logf("%d bytes for each of %d objects", each, objects)
	if each >= most {
		t.Errorf("%d bytes for each object, want less than %d", each, most)
	}
}

func TestOlderBridge(t *testing.T) {
	events := testkit.Events(t, 3, 50, 6)
	for i := range events {
		e := &events[i]
		e.Previous, e.TimeSource = "", ""
		if e.Sequence != "" {
			e.Sequence = fmt.Sprintf("%020s", e.ResourceVersion)
		}
	}
	r := check(events)
	if !r.OK {
		t.Errorf("what can't be checked is a fault:\n%s", describe(r))
	}
	for _, what := range []string{"order can't be checked", "have no previous"} {
		if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, what) }) {
			t.Errorf("notes %q, want one that says %q", r.Notes, what)
		}
	}
	for _, x := range r.Resources {
		if !strings.HasPrefix(x.Chain, "not checkable in ") {
			t.Errorf("the chain is %q", x.Chain)
		}
	}
}

// 100 events come again, each with another attribute. A copy may lack its manager, and may have
// another time.
func TestRepeatWithOtherAttributes(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(e *event.Event)
		isFault bool
	}{
		"kind":                 {func(e *event.Event) { e.Kind += "x" }, true},
		"API version":          {func(e *event.Event) { e.APIVersion = "x/v9" }, true},
		"manager":              {func(e *event.Event) { e.Manager += "x" }, true},
		"manager, subresource": {func(e *event.Event) { e.ManagerSubresource = "status" }, true},
		"manager, operation":   {func(e *event.Event) { e.ManagerOperation = "Apply" }, true},
		"no manager":           {func(e *event.Event) { e.Manager, e.ManagerOperation = "", "" }, false},
		"time":                 {func(e *event.Event) { e.Time = e.Time.Add(time.Second) }, false},
		"nothing":              {func(*event.Event) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			events := testkit.Events(t, 1, 300, 4)
			for i := range events {
				if e := &events[i]; !e.AboutInformer() && e.Op != event.Deleted {
					e.Manager, e.ManagerOperation = fmt.Sprint("kubectl-", i), "Update"
				}
			}
			const copies = 100
			stream := slices.Clone(events)
			for i := len(events) - 1; len(stream) < len(events)+copies; i-- {
				if again := events[i]; again.Op == event.Updated {
					test.change(&again)
					stream = append(stream, again)
				}
			}
			want := 0
			if test.isFault {
				want = copies
			}
			r := check(stream)
			if r.Repeats != copies || len(r.Found) != want || r.Faults[verify.Changed] != want {
				t.Errorf("%d repeats, %v, want %d faults\n%s", r.Repeats, r.Faults, want, describe(r))
			}
		})
	}
}

// The stream has 100 objects in a version that the cluster has not reached.
func TestAhead(t *testing.T) {
	events := testkit.Events(t, 5, 300, 4)
	newest := map[string]int{}
	for i := range events {
		if !events[i].AboutInformer() {
			newest[events[i].PartitionKey] = i
		}
	}
	reached := events[len(events)-1].ResourceVersion
	c, planted := verify.New(verify.Config{Whole: func() bool { return true }}), map[string]bool{}
	stream := slices.Clone(events)
	for key, i := range newest {
		if e := events[i]; e.Op == event.Updated && len(planted) < 100 {
			e.Previous, e.ResourceVersion = e.ResourceVersion, fmt.Sprint(900_000+i)
			e.ID, e.Sequence = e.UID+"/"+e.ResourceVersion, fmt.Sprintf("00000000.%020d", 900_000+i)
			e.Data = bytes.Replace(e.Data, []byte(`"`+e.Previous+`"`), []byte(`"`+e.ResourceVersion+`"`), 1)
			stream, planted[key] = append(stream, e), true
		}
	}
	feed(c, stream)
	comparison := c.Compare()
	for _, target := range comparison.Targets() {
		for key, i := range newest {
			e := &events[i]
			if strings.HasPrefix(key, target.Resource+"/") && e.Op != event.Deleted {
				comparison.Object(&target, verify.Listed{Namespace: e.Namespace, Name: e.Name, UID: e.UID, Version: e.ResourceVersion})
			}
		}
		comparison.End(&target, reached)
	}
	r := c.Report()
	if len(planted) != 100 || len(r.Found) != 100 || r.Faults[verify.Ahead] != 100 {
		t.Fatalf("of %d planted, %d were found: %v\n%s", len(planted), len(r.Found), r.Faults, describe(r))
	}
	for _, f := range r.Found {
		if !planted[f.Object] {
			t.Errorf("%s has no fault", f.Object)
		}
	}
}

// The time of an object runs back in 100 places, each in another object. What a takeover does to
// times is no fault, and nor is an earlier time of another object of the name.
func TestTimeRunsBack(t *testing.T) {
	events := testkit.Events(t, 4, 300, 12)
	for i := range events {
		events[i].Time = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC).Add(time.Duration(i) * time.Millisecond)
	}
	back := func(by time.Duration, isWanted func(e *event.Event) bool) (changed []event.Event, keys map[string]bool) {
		changed, keys = slices.Clone(events), map[string]bool{}
		seen := map[string]int{}
		for i := range changed {
			e := &changed[i]
			if seen[e.UID]++; e.AboutInformer() || seen[e.UID] < 3 || keys[e.PartitionKey] || len(keys) == 100 || !isWanted(e) {
				continue
			}
			e.Time = e.Time.Add(-by)
			keys[e.PartitionKey] = true
		}
		return changed, keys
	}
	isUpdate := func(e *event.Event) bool { return e.Op == event.Updated }
	changed, keys := back(time.Hour, isUpdate)
	r := check(changed)
	if len(keys) != 100 || len(r.Found) != 100 || r.Faults[verify.Backwards] != 100 {
		t.Fatalf("of %d planted, %d were found: %v", len(keys), len(r.Found), r.Faults)
	}
	for _, f := range r.Found {
		if !keys[f.Object] {
			t.Errorf("%s has no fault", f.Object)
		}
	}
	if changed, keys = back(5*time.Minute, isUpdate); len(keys) != 100 || !check(changed).OK {
		t.Errorf("a takeover with another clock is a fault: %s", describe(check(changed)))
	}
	changed = slices.Clone(events)
	successors := 0
	for i := range changed {
		if e := &changed[i]; e.Op == event.Added && !e.Initial {
			e.Time = e.Time.Add(-time.Hour)
			successors++
		}
	}
	if successors == 0 || !check(changed).OK {
		t.Errorf("of %d, an object of an earlier time than the one before it under its name is a fault: %s", successors, describe(check(changed)))
	}
}
