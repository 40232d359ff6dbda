package recipes_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/test/e2e/harness"
)

// moment is an object from a time on: gone, or in a version.
type moment struct {
	at    time.Time
	state string // uid and version; "" for gone
}

// generated is a stream of generated events, and what is true of the clusters that it is about.
type generated struct {
	random  *rand.Rand
	now     time.Time
	version int
	records []string            // in the order of the stream
	objects map[string][]moment // by what state_at has in front of the state
	ids     map[string]bool
	churn   map[string]int
	who     map[string]int
	gaps    map[string]int
}

// unit is an informer's share of a resource, with the objects that exist.
type unit struct {
	stream  *generated
	cluster string
	kind    resource.Type
	shard   resource.Shard
	maker   *event.Maker
	alive   map[string]*event.Change
	era     event.IDSuffix
}

// newUnit makes the unit of a resource in a cluster.
func newUnit(t *testing.T, f *generated, cluster string, kind resource.Type, shard resource.Shard) *unit {
	t.Helper()
	m, err := event.NewMaker(event.MakerConfig{Cluster: cluster, Informer: "all", Type: kind, Shard: shard})
	must(t, err)
	return &unit{
		stream: f, cluster: cluster, kind: kind, shard: shard, maker: m,
		alive: map[string]*event.Change{},
	}
}

// send adds an event to the stream, once or repeatedly: what was observed has a later time then.
func (f *generated) send(e *event.Event, cluster string) {
	f.ids[cluster+" "+e.ID] = true
	f.records = append(f.records, string(event.AppendFlat(nil, e)))
	if f.random.IntN(5) == 0 {
		again := *e
		again.Time = e.Time.Add(time.Duration(f.random.IntN(20_000)) * time.Millisecond)
		f.records = append(f.records, string(event.AppendFlat(nil, &again)))
	}
}

func (u *unit) change(c *event.Change) {
	c.Time, c.Observed = u.stream.now, u.stream.now
	u.stream.version++
	c.Version = resource.Version(fmt.Sprint(u.stream.version))
	if c.Op != event.Deleted {
		c.By = resource.FieldManager{Manager: []string{"helm", "kubectl", `argo"cd`}[u.stream.random.IntN(3)], Operation: "Update"}
	}
	u.stream.churn[fmt.Sprint(u.cluster, " ", u.kind.Group, " ", u.kind.Kind, " ", c.Op)]++
	u.note(c)
	e := u.emit(c)
	actor := []string{"", "ann", `o'neil`}[u.stream.random.IntN(3)]
	u.attribute(&e, actor)
	if u.stream.random.IntN(10) == 0 { // of a change that was lost
		lost := e
		lost.ID, lost.Sequence = e.ID+"/lost", e.Sequence+"0"
		u.attribute(&lost, "ann")
	}
	if actor != "" || c.By.Manager != "" {
		u.stream.who[fmt.Sprint(u.cluster, " ", actor, " ", c.By.Manager, " ", u.kind.Group, " ", u.kind.Kind)]++
	}
}

// attribute sends the event about the user of a change; without one it says why there is none.
func (u *unit) attribute(change *event.Event, actor string) {
	e := *change
	e.ID, e.Op, e.Type = e.ID+event.AttributedSuffix, event.Attributed, event.TypeAttributed
	e.Manager, e.ManagerOperation, e.Data = "", "", []byte(`{"unknown":"no request"}`)
	if actor != "" {
		e.Data, e.Extensions = []byte(`{}`), []event.Attribute{{Name: "actor", Value: actor}, {Name: "verb", Value: "patch"}}
	}
	u.stream.send(&e, u.cluster)
}

// note adds a change to the truth.
func (u *unit) note(c *event.Change) {
	namespace, name := c.Key.Split()
	key := fmt.Sprintf("%s|%s|%s|%s|%s", u.cluster, u.kind.Group, u.kind.Resource, namespace, name)
	state := c.UID + " " + string(c.Version)
	if c.Op == event.Deleted {
		state = ""
	}
	u.stream.objects[key] = append(u.stream.objects[key], moment{u.stream.now, state})
}

func (u *unit) emit(c *event.Change) event.Event {
	c.IDSuffix = u.era
	raw := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q},"text":"\"é\\\n"}`, c.UID, c.Version)
	c.Object = &resource.Object{Raw: []byte(raw)}
	e := u.maker.Object(c)
	u.stream.send(&e, u.cluster)
	return e
}

// step changes, deletes, creates or recreates an object.
func (u *unit) step() {
	f := u.stream
	f.now = f.now.Add(time.Duration(1+f.random.IntN(3000)) * time.Millisecond)
	namespace, name := fmt.Sprint("ns-", f.random.IntN(2)), fmt.Sprint("web-", f.random.IntN(5))
	if !u.shard.Has(u.kind, namespace, name) {
		return
	}
	key := namespace + "/" + name
	was := u.alive[key]
	switch {
	case was == nil:
		c := &event.Change{Op: event.Added, Key: resource.Key(key), UID: fmt.Sprint("uid-", f.version)}
		u.change(c)
		u.alive[key] = c
	case f.random.IntN(4) == 0:
		u.change(&event.Change{Op: event.Deleted, Key: was.Key, UID: was.UID, Before: was.Version})
		delete(u.alive, key)
	default:
		c := &event.Change{Op: event.Updated, Key: was.Key, UID: was.UID, Before: was.Version}
		u.change(c)
		u.alive[key] = c
	}
}

// gap reports that versions are missing, to each of three partitions. After the loss of the state
// every object comes again, but for what was deleted meanwhile.
func (u *unit) gap(reason string) {
	f := u.stream
	f.now = f.now.Add(time.Second)
	f.version++
	relist := &resource.Relist{Reason: reason, From: "1", To: resource.Version(fmt.Sprint(f.version))}
	if reason == resource.ReasonForgotten {
		u.era.Epoch++
	}
	about := u.maker.Gap(relist, time.Time{}, u.era, f.now)
	for part := range 3 {
		e := about.Copy(part)
		f.send(&e, u.cluster)
	}
	f.gaps[fmt.Sprint(u.cluster, " ", u.kind.Resource, " ", u.kind.Group, " ", reason)]++
	if reason != resource.ReasonForgotten {
		return
	}
	for key, c := range u.alive {
		if f.random.IntN(3) == 0 {
			u.note(&event.Change{Op: event.Deleted, Key: c.Key})
			delete(u.alive, key)
			continue
		}
		again := *c
		again.Op, again.Initial, again.By = event.Added, true, resource.FieldManager{} // a state
		if f.random.IntN(2) == 0 {
			again.Time = f.now // it was observed; the time of managedFields is that of the change
		}
		u.emit(&again)
	}
	synced := u.maker.Synced(relist.To, event.Listing{Items: len(u.alive)}, u.era, f.now)
	f.send(&synced, u.cluster)
}

// stateAt returns what exists at a time, as lines.
func (f *generated) stateAt(at time.Time) (lines []string) {
	for key, moments := range f.objects {
		state := ""
		for _, m := range moments {
			if !m.at.After(at) {
				state = m.state
			}
		}
		if state != "" {
			lines = append(lines, strings.ReplaceAll(key, "|", ",")+","+strings.Replace(state, " ", ",", 1))
		}
	}
	slices.Sort(lines)
	return lines
}

// generate makes a stream of two clusters and four resources, two of which differ in their group.
// A fifth is split between three bridges.
func generate(t *testing.T, seed uint64) *generated {
	t.Helper()
	f := &generated{
		random: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 11, 28, 12, 0, 0, 123, time.UTC),
		objects: map[string][]moment{}, ids: map[string]bool{}, churn: map[string]int{},
		who: map[string]int{}, gaps: map[string]int{},
	}
	var units []*unit
	for _, cluster := range []string{"prod", "test ü"} {
		for _, kind := range []resource.Type{
			{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
			{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
			{Group: "a.example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true},
			{Group: "b.example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true},
		} {
			units = append(units, newUnit(t, f, cluster, kind, resource.Shard{}))
		}
	}
	for i := range 3 {
		jobs := resource.Type{Group: "batch", Version: "v1", Resource: "jobs", Kind: "Job", Namespaced: true}
		units = append(units, newUnit(t, f, "prod", jobs, resource.Shard{Index: i, Count: 3}))
	}
	for i := range 4000 {
		units[f.random.IntN(len(units))].step()
		switch i {
		case 1500:
			units[0].gap(resource.ReasonForgotten)
			units[6].gap(resource.ReasonForgotten)
			units[9].gap(resource.ReasonForgotten)
		case 2000:
			units[1].gap(resource.ReasonExpired)
		case 3000:
			units[6].gap(resource.ReasonForgotten)
		}
	}
	return f
}

// loadChanges is what a consumer does: it inserts records unchanged, and asks.
const loadChanges = `import json, sys
from chdb.session import Session

db = Session("clickhouse")
for statement in open("changes.sql").read().split(";\n"):
    if statement.strip():
        db.query(statement)
batches = json.load(open("batches.json"))
for batch in batches:
    db.query("INSERT INTO changes FORMAT JSONEachRow " + "\n".join(batch))
for file in ["changes_kafka.sql", "changes_nats.sql"]:  # these are parsed only
    for statement in open(file).read().split(";\n"):
        if statement.strip():
            db.query("SELECT formatQuery($$" + statement + "$$)")
print(json.dumps([str(db.query(q, "CSV")).replace('"', '').splitlines() for q in json.load(open("questions.json"))]))
`

// TestClickHouse inserts generated flat records, as the Kafka engine of a server does (chDB has no
// such engine that runs), and compares the views of changes.sql with what is true.
func TestClickHouse(t *testing.T) {
	python := installed(t, "PYTHON")
	root, err := harness.Root()
	must(t, err)
	dir, seed := t.TempDir(), rand.Uint64()
	t.Logf("seed %d", seed)
	f := generate(t, seed)
	const final = "SELECT count(), uniqExact(cluster, id) FROM changes FINAL"
	questions := []string{
		final,
		"SELECT concat(cluster, ' ', apigroup, ' ', kind, ' ', op), sum(changes) FROM churn GROUP BY 1 ORDER BY 1",
		"SELECT concat(cluster, ' ', actor, ' ', manager, ' ', apigroup, ' ', kind), sum(changes) FROM who GROUP BY 1 ORDER BY 1",
		"SELECT concat(cluster, ' ', resource, ' ', apigroup, ' ', reason), count() FROM gaps GROUP BY 1 ORDER BY 1",
		"SELECT DISTINCT JSONExtractString(data, 'text') FROM changes WHERE name != '' AND op != 'attributed'",
	}
	begin := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	var moments []time.Time
	for range 100 {
		at := begin.Add(time.Duration(f.random.Int64N(int64(f.now.Sub(begin)))))
		moments = append(moments, at)
		questions = append(questions, fmt.Sprintf("SELECT cluster, apigroup, resource, namespace, name, uid, resourceversion"+
			" FROM state_at(at = '%s')", at.Format("2006-01-02 15:04:05.000000000")))
	}
	var batches [][]string
	for batch := range slices.Chunk(f.records, 1000) {
		batches = append(batches, batch)
	}
	batches = append(batches, batches[1]) // an offset that was not committed
	write := func(name string, text []byte) { must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600)) }
	encode := func(v any) []byte {
		text, err := json.Marshal(v)
		must(t, err)
		return text
	}
	for _, name := range []string{"changes.sql", "changes_kafka.sql", "changes_nats.sql"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", "consumers", "analytics", name))
		must(t, err)
		write(name, text)
	}
	write("load.py", []byte(loadChanges))
	write("batches.json", encode(batches))
	write("questions.json", encode(questions))
	cmd := exec.CommandContext(t.Context(), python, "load.py")
	cmd.Dir, cmd.Stderr = dir, t.Output()
	out, err := cmd.Output()
	must(t, err)
	var answers [][]string
	must(t, json.Unmarshal(out, &answers))

	same := func(what string, got, want []string) {
		t.Helper()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	counted := func(of map[string]int) (lines []string) {
		for key, n := range of {
			lines = append(lines, fmt.Sprint(strings.ReplaceAll(key, `"`, ""), ",", n))
		}
		return lines
	}
	n := len(f.ids)
	same("rows and ids", answers[0], []string{fmt.Sprint(n, ",", n)})
	same("churn", answers[1], counted(f.churn))
	same("who", answers[2], counted(f.who))
	same("gaps", answers[3], counted(f.gaps))
	same("an object's text", answers[4], []string{`é\`, ""})
	for i, at := range moments {
		same("state at "+at.Format(time.RFC3339Nano), answers[5+i], f.stateAt(at))
	}
	t.Logf("%d records, %d events, %d moments", len(f.records), n, len(moments))
}
