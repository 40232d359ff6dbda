package history_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/testkit"
)

var modelRounds = flag.Int("history.rounds", 8, "rounds of TestModel")

// model is a history as plain maps: by object, by sequence.
type model map[string]map[string]*event.Event

func (m model) add(e *event.Event) {
	if e.AboutInformer() {
		return
	}
	object := e.Informer + " " + e.PartitionKey
	if m[object] == nil {
		m[object] = map[string]*event.Event{}
	}
	if m[object][e.Sequence] == nil {
		m[object][e.Sequence] = e
	}
}

func (m model) versions(object string) []*event.Event {
	return slices.SortedFunc(maps.Values(m[object]), func(a, b *event.Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
}

// TestModel writes random events in random batches, late and repeated ones among them, kills the
// process between two writes, and compares all answers with plain maps.
func TestModel(t *testing.T) {
	for round := range testkit.Rounds(*modelRounds, 2) {
		t.Run(fmt.Sprint("seed ", round), func(t *testing.T) { runModel(t, uint64(round)) })
	}
}

func runModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	events := testkit.Events(t, seed, 20, 80)
	for i := range events {
		events[i].Time = events[0].Observed.Add(time.Duration(i) * 700 * time.Millisecond)
		if random.IntN(2) == 0 { // as the API server has it
			events[i].Time, events[i].TimeSource = events[i].Time.Truncate(time.Second), event.TimeManagedFields
		}
	}
	addIndexed(random, events)
	inOrderOfTime(events)
	disorder(random, events)
	files := vfs.NewCrashableMem()
	options := func() history.Options {
		return history.Options{
			Dir: "history", FS: files, MemTableBytes: 64 << 10, LastVersionsBytes: []int{1, 20_000, 0}[seed%3],
		}
	}
	db, err := history.Open(options())
	testkit.OK(t, err)
	known := model{}
	stored := 0
	for stored < len(events) {
		n := min(1+random.IntN(60), len(events)-stored)
		var batch []*event.Event
		for i := range n {
			batch = append(batch, &events[stored+i])
		}
		position := history.SourcePosition{Name: "s", Position: fmt.Appendf(nil, "%d", stored+n)}
		_, err := db.Writer.Append(t.Context(), batch, position)
		testkit.OK(t, err)
		if random.IntN(10) == 0 {
			crashed := files.CrashClone(vfs.CrashCloneCfg{
				UnsyncedDataPercent: random.IntN(101), RNG: rand.New(rand.NewPCG(seed, uint64(stored))),
			})
			testkit.OK(t, db.Close())
			files = crashed
			db, err = history.Open(options())
			testkit.OK(t, err)
			at, err := db.Writer.Position("s")
			testkit.OK(t, err)
			if string(at) != fmt.Sprint(stored+n) {
				t.Fatalf("after a crash it is read up to %s, and was acknowledged up to %d", at, stored+n)
			}
			if random.IntN(2) == 0 { // the source repeats what was acknowledged
				_, err := db.Writer.Append(t.Context(), batch)
				testkit.OK(t, err)
			}
		}
		for _, e := range batch {
			known.add(e)
		}
		stored += n
	}
	defer func() { testkit.OK(t, db.Close()) }()
	compare(t, db, known, random)
	compareTimeline(t, db, known, random)
	compareState(t, db, known, random)
	compareIndexes(t, db, known, random)
}

// addIndexed gives objects owners, and pods nodes, which change now and then.
func addIndexed(random *rand.Rand, events []event.Event) {
	owners, nodes := map[string]string{}, map[string]string{}
	for i := range events {
		e := &events[i]
		if e.AboutInformer() {
			continue
		}
		object := e.PartitionKey
		if _, known := owners[object]; !known || random.IntN(10) == 0 {
			owners[object] = ""
			for range random.IntN(3) {
				owners[object] += fmt.Sprintf(`{"uid":"o%d"},`, random.IntN(4))
			}
			nodes[object] = []string{"", `"nodeName":"n1",`, `"nodeName":"n2",`}[random.IntN(3)]
		}
		data := strings.Replace(string(e.Data), `"labels":{`, `"ownerReferences":[`+strings.TrimSuffix(owners[object], ",")+`],"labels":{`, 1)
		e.Data = []byte(strings.Replace(data, `"spec":{`, `"spec":{`+nodes[object], 1))
	}
}

// compareIndexes compares what had a value at random times and versions, and from one time to
// another.
func compareIndexes(t *testing.T, db *history.DB, known model, random *rand.Rand) {
	t.Helper()
	units := db.Questions.Resources.Units()
	var all []*event.Event
	for object := range known {
		all = append(all, known.versions(object)...)
	}
	for range 60 {
		by, value := query.ByOwner(fmt.Sprint("o", random.IntN(4))), ""
		if value = `{"uid":"` + by.Value + `"}`; random.IntN(3) == 0 {
			by = query.ByNode(fmt.Sprint("n", 1+random.IntN(2)))
			value = `"nodeName":"` + by.Value + `"`
		}
		has := func(e *event.Event) bool {
			return strings.Contains(string(e.Data), value) && (by.Index == keys.IndexOwner || e.Resource == "pods")
		}
		some, other := all[random.IntN(len(all))], all[random.IntN(len(all))]
		p := []query.Point{{}, {At: some.Time}, {Version: version(some)}}[random.IntN(3)]
		namespace := []string{"shop", "*", "none"}[random.IntN(3)]
		var want, got []string
		for object := range known {
			e := lastAt(known.versions(object), p)
			if e != nil && e.Op != event.Deleted && has(e) && (namespace == "*" || namespace == e.Namespace) {
				want = append(want, e.PartitionKey+" "+e.Sequence)
			}
		}
		slices.Sort(want)
		having, err := db.Questions.Objects.UnitsWith(units, by)
		testkit.OK(t, err)
		for v, err := range db.Questions.Objects.State(query.StateQuery{Units: having, Namespace: namespace, At: p, By: by}) {
			testkit.OK(t, err)
			got = append(got, v.Event.PartitionKey+" "+v.Event.Sequence)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s in %s at %v: %q, want %q", by.Value, namespace, p, got, want)
		}
		since, until := some.Time, other.Time
		if until.Before(since) {
			since, until = until, since
		}
		had := map[string]bool{}
		for o, err := range db.Questions.Objects.ValueSpans(units, by, since, until) {
			testkit.OK(t, err)
			had[o.Name+" "+o.UID] = true
		}
		for _, e := range all {
			if e.Op != event.Deleted && !e.Time.Before(since) && !e.Time.After(until) && has(e) && !had[e.Name+" "+e.UID] {
				t.Fatalf("%s from %v to %v lacks %s, which had it at %v", by.Value, since, until, e.PartitionKey, e.Time)
			}
		}
	}
}

// inOrderOfTime keeps the times of an object from going back, as the bridge does.
func inOrderOfTime(events []event.Event) {
	last := map[string]time.Time{}
	for i := range events {
		e := &events[i]
		if e.Time.Before(last[e.PartitionKey]) {
			e.Time = last[e.PartitionKey]
		}
		last[e.PartitionKey] = e.Time
	}
}

// disorder delays some events behind later ones of their objects, and repeats some.
func disorder(random *rand.Rand, events []event.Event) {
	for range len(events) / 20 {
		i := random.IntN(len(events) - 30)
		j := i + random.IntN(30)
		if random.IntN(2) == 0 {
			events[i], events[j] = events[j], events[i]
		} else {
			events[j] = events[i] // a repeat in the place of another event, which is missing then
		}
	}
}

// compare asks everything of a history that a model knows.
func compare(t *testing.T, db *history.DB, known model, random *rand.Rand) {
	t.Helper()
	objects := map[string]*query.Object{}
	for _, u := range db.Questions.Resources.Units() {
		for o, err := range db.Questions.Objects.All(u, "") {
			testkit.OK(t, err)
			objects[u.Informer+" "+fmt.Sprintf("%s/%s/%s", resourceOf(u), o.Namespace, o.Name)] = &o
		}
	}
	if len(objects) != len(known) {
		t.Fatalf("%d objects, want %d", len(objects), len(known))
	}
	for name := range known {
		o := objects[name]
		if o == nil {
			t.Fatalf("%s is missing", name)
		}
		want := known.versions(name)
		compareVersions(t, db, o, want, time.Time{}, time.Time{})
		for range 10 {
			at := want[random.IntN(len(want))].Time.Add(time.Duration(random.IntN(3)-1) * time.Second)
			got, err := db.Questions.Objects.At(o, query.Point{At: at})
			testkit.OK(t, err)
			compareVersion(t, got, lastUpTo(want, at))
			compareVersions(t, db, o, want, at, at.Add(time.Duration(random.IntN(1000))*time.Second))
		}
		got, err := db.Questions.Objects.At(o, query.Point{})
		testkit.OK(t, err)
		compareVersion(t, got, want[len(want)-1])
	}
}

// compareTimeline compares what happened in random windows, in a namespace and in all.
func compareTimeline(t *testing.T, db *history.DB, known model, random *rand.Rand) {
	t.Helper()
	var all []*event.Event
	for object := range known {
		all = append(all, known.versions(object)...)
	}
	order := func(e *event.Event) string {
		return fmt.Sprintf("%d %s %s", e.Time.Unix(), e.Sequence, e.PartitionKey)
	}
	for range 5 {
		since := all[random.IntN(len(all))].Time.Truncate(time.Second)
		until := since.Add(time.Duration(random.IntN(1000)) * time.Second)
		namespace := []string{"shop", "*", "none"}[random.IntN(3)]
		var want, got []string
		for _, e := range all {
			if (namespace == "*" || namespace == e.Namespace) && !e.Time.Before(since) && e.Time.Before(until.Add(time.Second)) {
				want = append(want, order(e))
			}
		}
		var steps []query.Step
		for step, err := range db.Questions.Timeline.Steps("prod", namespace, since, until, nil) {
			testkit.OK(t, err)
			got = append(got, order(&step.Event))
			compareVersion(t, step.Version, known["workloads "+step.Event.PartitionKey][step.Event.Sequence])
			before := known.before(step.Version)
			if before != nil && before.Op == event.Deleted {
				before = nil
			}
			compareVersion(t, step.Before, before)
			steps = append(steps, step)
		}
		i := 0
		for entry, err := range db.Questions.Timeline.Entries("prod", namespace, since, until, nil) {
			testkit.OK(t, err)
			if i == len(steps) {
				t.Fatalf("in %s from %v to %v: more than %d entries", namespace, since, until, i)
			}
			compareEntry(t, entry, &steps[i])
			i++
		}
		if i != len(steps) {
			t.Fatalf("in %s from %v to %v: %d entries, want %d", namespace, since, until, i, len(steps))
		}
		newestFirst(t, db, namespace, since, until, steps)
		compareObjects(t, db, namespace, since, until, steps)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("in %s from %v to %v: %d entries, want %d", namespace, since, until, len(got), len(want))
		}
	}
}

// newestFirst asks for the same in pages, each with the cursor of the page before.
func newestFirst(t *testing.T, db *history.DB, namespace string, since, until time.Time, steps []query.Step) {
	t.Helper()
	const page = 7
	i := len(steps)
	for cursor, more := "", true; more; {
		before, err := query.ParseCursor(cursor)
		testkit.OK(t, err)
		read := 0
		for entry, err := range db.Questions.Timeline.NewestFirst("prod", namespace, since, until, before, nil) {
			testkit.OK(t, err)
			if i--; i < 0 {
				t.Fatalf("newest first in %s: more than %d entries", namespace, len(steps))
			}
			compareEntry(t, entry, &steps[i])
			cursor = entry.Cursor.String()
			if read++; read == page {
				break
			}
		}
		more = read == page
	}
	if i != 0 {
		t.Fatalf("newest first in %s from %v to %v: %d entries of %d are missing", namespace, since, until, i, len(steps))
	}
}

// compareObjects asks for the objects of the steps, and for the last version of each.
func compareObjects(t *testing.T, db *history.DB, namespace string, since, until time.Time, steps []query.Step) {
	t.Helper()
	objects, err := db.Questions.Timeline.Objects("prod", namespace, since, until, nil)
	testkit.OK(t, err)
	want := map[query.Object]bool{}
	for _, s := range steps {
		want[query.Object{Unit: s.Unit, Namespace: s.Event.Namespace, Name: s.Event.Name}] = true
	}
	for _, o := range objects {
		if !want[o] {
			t.Fatalf("in %s from %v to %v: nothing happened to %v", namespace, since, until, o)
		}
	}
	if len(objects) != len(want) {
		t.Fatalf("in %s from %v to %v: %d objects, want %d", namespace, since, until, len(objects), len(want))
	}
	for v, err := range db.Questions.Objects.Latest(objects) {
		testkit.OK(t, err)
		o := query.Object{Unit: v.Unit, Namespace: v.Event.Namespace, Name: v.Event.Name}
		at, err := db.Questions.Objects.At(&o, query.Point{})
		testkit.OK(t, err)
		if delete(want, o); !reflect.DeepEqual(attributes(&v.Event), attributes(&at.Event)) || string(v.Event.Data) != string(at.Event.Data) {
			t.Fatalf("the last version of %v: %v, want %v", o, v.Event, at.Event)
		}
	}
	if len(want) > 0 {
		t.Fatalf("no last version of %v", want)
	}
}

// compareEntry compares what a timeline says of a step with the two versions.
func compareEntry(t *testing.T, entry *query.Entry, step *query.Step) {
	t.Helper()
	want := step.Event
	want.ID, want.UID, want.Data = "", "", nil
	want.Type, want.Subject, want.PartitionKey, want.Sequence = "", "", "", ""
	if g, w := attributes(&entry.Event), attributes(&want); !maps.Equal(g, w) || !entry.Time.Equal(step.Time) {
		t.Fatalf("got  %v\nwant %v", g, w)
	}
	if entry.Form() != step.Form() || entry.HasBefore != (step.Before != nil) || entry.Number() != step.Number() {
		t.Fatalf("%s: form %q, want %q; a version before: %v", step.Event.Sequence, entry.Form(), step.Form(), entry.HasBefore)
	}
	changes := step.ChangesSince(step.Before)
	if len(entry.Changes)+entry.More != len(changes) {
		t.Fatalf("%s: %d and %d changes, want %v", step.Event.Sequence, len(entry.Changes), entry.More, changes)
	}
	for i, c := range entry.Changes {
		w := changes[i]
		if c.Omitted {
			w.Old, w.New, w.Omitted = nil, nil, len(w.Old) > 20 || len(w.New) > 20
		}
		if !reflect.DeepEqual(c, w) {
			t.Fatalf("%s: %s %s→%s, want %s %s→%s", step.Event.Sequence, c.Path, c.Old, c.New, w.Path, w.Old, w.New)
		}
	}
	heartbeat := step.Event.Op == event.Updated && len(changes) > 0 &&
		!slices.ContainsFunc(changes, func(c diff.Change) bool { return !c.IsHeartbeat() })
	if entry.IsHeartbeat() != heartbeat {
		t.Fatalf("%s: heartbeat %v of %v", step.Event.Sequence, entry.IsHeartbeat(), changes)
	}
}

// compareState compares all objects at random times and versions, of a namespace and of all.
func compareState(t *testing.T, db *history.DB, known model, random *rand.Rand) {
	t.Helper()
	var all []*event.Event
	for object := range known {
		all = append(all, known.versions(object)...)
	}
	for range 20 {
		some := all[random.IntN(len(all))]
		p := []query.Point{{}, {At: some.Time}, {Version: version(some)}}[random.IntN(3)]
		namespace := []string{"shop", "*", "none"}[random.IntN(3)]
		want := map[string]*event.Event{}
		for object := range known {
			versions := known.versions(object)
			if e := lastAt(versions, p); e != nil && e.Op != event.Deleted && (namespace == "*" || namespace == e.Namespace) {
				want[e.PartitionKey] = e
			}
		}
		var keys []string
		for v, err := range db.Questions.Objects.State(query.StateQuery{Units: db.Questions.Resources.Units(), Namespace: namespace, At: p}) {
			testkit.OK(t, err)
			compareVersion(t, v, want[v.Event.PartitionKey])
			keys = append(keys, v.Event.PartitionKey)
		}
		if !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("in %s at %v: %d objects, want %d", namespace, p, len(keys), len(want))
		}
	}
}

func version(e *event.Event) uint64 {
	n, _ := strconv.ParseUint(e.ResourceVersion, 10, 64) // testkit's are numbers
	return n
}

func lastAt(want []*event.Event, p query.Point) *event.Event {
	for _, e := range slices.Backward(want) {
		if p.IsZero() || !p.At.IsZero() && !e.Time.After(p.At) || p.Version > 0 && version(e) <= p.Version {
			return e
		}
	}
	return nil
}

// before is the version before one.
func (m model) before(v *query.Version) (before *event.Event) {
	for _, e := range m.versions("workloads " + v.Event.PartitionKey) {
		if e.Sequence >= v.Event.Sequence {
			break
		}
		before = e
	}
	return before
}

func resourceOf(u *record.Unit) string {
	if u.Group == "" {
		return u.Resource
	}
	return u.Resource + "." + u.Group
}

func lastUpTo(want []*event.Event, at time.Time) *event.Event {
	for _, e := range slices.Backward(want) {
		if !e.Time.After(at) {
			return e
		}
	}
	return nil
}

func compareVersions(t *testing.T, db *history.DB, o *query.Object, all []*event.Event, since, until time.Time) {
	t.Helper()
	var want []*event.Event
	for _, e := range all {
		if !e.Time.Before(since) && (until.IsZero() || !e.Time.After(until)) {
			want = append(want, e)
		}
	}
	i := 0
	for v, err := range db.Questions.Objects.Versions(o, since, until) {
		testkit.OK(t, err)
		if i >= len(want) {
			t.Fatalf("%s: more than %d versions from %v to %v", o, len(want), since, until)
		}
		compareVersion(t, v, want[i])
		i++
	}
	if i != len(want) {
		t.Fatalf("%s: %d versions from %v to %v, want %d", o, i, since, until, len(want))
	}
}

// compareVersion compares attributes and data, byte for byte.
func compareVersion(t *testing.T, got *query.Version, want *event.Event) {
	t.Helper()
	if got == nil || want == nil {
		if got != nil || want != nil {
			t.Fatalf("got %t, want %t", got != nil, want != nil)
		}
		return
	}
	if g, w := attributes(&got.Event), attributes(want); !maps.Equal(g, w) {
		t.Fatalf("got  %v\nwant %v", g, w)
	}
}

func attributes(e *event.Event) map[string]string {
	all := map[string]string{"data": string(e.Data), "op": string(e.Op), "group": e.Group}
	e.Each(func(name, value string) { all[name] = value })
	return all
}
