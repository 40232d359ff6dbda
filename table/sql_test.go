package table

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	lib "github.com/apache/iceberg-go/table"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// answers are the rows by engine and question.
type answers map[string]map[string][][]string

// askEngines asks the engines of testdata/ask.py.
func askEngines(t *testing.T, dir string, questions map[string]map[string]string) (got answers) {
	t.Helper()
	python := os.Getenv("TABLE_PYTHON")
	if python == "" {
		t.Skip("needs DuckDB, ClickHouse and pyiceberg: make test-table")
	}
	asked := map[string]any{
		"dir": dir, "questions": questions,
		"metadata": strings.TrimPrefix(openTest(t, dir).MetadataLocation(), "file://"),
	}
	for _, of := range []string{"duckdb", "clickhouse"} {
		asked[of] = runProgram(t, "sql", "--to", dir, "--engine", of)
	}
	in, err := json.Marshal(asked)
	testkit.OK(t, err)
	cmd := exec.CommandContext(t.Context(), python, "testdata/ask.py")
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	testkit.OK(t, err)
	testkit.OK(t, json.Unmarshal(out, &got))
	for _, of := range []struct {
		name, needs string // needs is set where the engine is there
		ask         func(t *testing.T, dir string, statements []string, questions map[string]string) map[string][][]string
	}{{"spark", "TABLE_SPARK", askSpark}, {"trino", "TABLE_TRINO", askTrino}} {
		if os.Getenv(of.needs) == "" {
			continue
		}
		views := runProgram(t, "sql", "--engine", of.name, "--table", "kubebridge.kubebridge.changes")
		its := map[string]string{}
		for name, q := range questions {
			if q[of.name] != "" {
				its[name] = q[of.name]
			}
		}
		got[of.name] = of.ask(t, dir, statementsOf(views), its)
	}
	return got
}

// statementsOf are the statements of a text, without comments.
func statementsOf(text string) (statements []string) {
	for s := range strings.SplitSeq(comments.ReplaceAllString(text, ""), ";\n") {
		if s = strings.TrimSpace(s); s != "" {
			statements = append(statements, s)
		}
	}
	return statements
}

var comments = regexp.MustCompile(`(?m)^--.*\n`)

// askSpark runs statements in Spark, and asks it, where $TABLE_SPARK is a Python that has it.
func askSpark(t *testing.T, dir string, statements []string, questions map[string]string) map[string][][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("TABLE_SPARK"), "testdata/jvm/spark.py")
	return askCommand(t, cmd, map[string]any{
		"dir": dir, "jars": append(jarsOf(t, "iceberg-*.jar"), jarsOf(t, "sqlite-*.jar")...), "statements": statements, "questions": questions,
	})
}

// askTrino does with Trino: $TABLE_TRINO is a directory with its jars, $TABLE_JDK a JDK 25.
// A prepared statement has all columns: a question names in a comment those that are wanted.
func askTrino(t *testing.T, dir string, statements []string, questions map[string]string) map[string][][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("TABLE_JDK"), "bin", "java"), "-Xmx1g",
		"--add-modules", "jdk.incubator.vector", "-cp", os.Getenv("TABLE_TRINO")+"/*", "testdata/trino/Trino.java")
	got := askCommand(t, cmd, map[string]any{"dir": dir, "statements": statements, "questions": questions})
	for name, q := range questions {
		if _, columns, found := strings.Cut(q, " -- "); found {
			got[name] = picked(got[name], strings.Fields(columns))
		}
	}
	return got
}

// trinoState asks Trino for columns of a state.
func trinoState(at time.Time, columns string) string {
	return fmt.Sprintf("EXECUTE state_at USING TIMESTAMP '%s UTC' -- %s", at.Format(time.DateTime), columns)
}

// picked are some columns of rows of the table.
func picked(rows [][]string, columns []string) (out [][]string) {
	for _, row := range rows {
		var values []string
		for _, c := range columns {
			at := slices.IndexFunc(changesSchema.Fields(), func(f iceberg.NestedField) bool { return f.Name == c })
			values = append(values, row[at])
		}
		out = append(out, values)
	}
	return out
}

func askCommand(t *testing.T, cmd *exec.Cmd, asked map[string]any) (got map[string][][]string) {
	t.Helper()
	in, err := json.Marshal(asked)
	testkit.OK(t, err)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), t.Output()
	out, err := cmd.Output()
	testkit.OK(t, err)
	testkit.OK(t, json.Unmarshal(out, &got))
	return got
}

// same is one question for all engines.
func same(sql string) map[string]string {
	return map[string]string{"duckdb": sql, "clickhouse": sql, "spark": sql, "trino": sql}
}

// script is a stream over four days: changes, a gap after which a part of the objects comes again,
// and changes that come late. It is stored in parts, between which the writer runs.
func script(t *testing.T) (parts [][]event.Event) {
	t.Helper()
	events := testkit.Events(t, 17, 30, 20)
	step := 4 * day / time.Duration(len(events))
	for i := range events {
		events[i].Time = morning.Add(time.Duration(i) * step)
	}
	cut := len(events) * 5 / 8
	before, after := events[:cut], events[cut:]
	// The state of the bridge is lost: of one kind every third object is gone, and comes no more.
	gapTime := before[cut-1].Time.Add(time.Second)
	last := map[string]event.Event{}
	for _, e := range before {
		if e.Name != "" {
			last[e.PartitionKey] = e
		}
	}
	kind := before[0]
	gap := event.Event{
		ID: "workloads/" + kind.Resource + "/gap/1", Source: kind.Source, Informer: kind.Informer, Op: event.Gap,
		Type: "dev.kubebridge.informer.gap", Time: gapTime, PartitionKey: "of " + kind.Resource, Sequence: "00000001.00000000000000000001",
		ObjectAttributes: event.ObjectAttributes{APIVersion: kind.APIVersion, Kind: kind.Kind, Resource: kind.Resource},
		Routing:          kind.Routing, Data: []byte(`{"reason":"forgotten","from":"","to":"9"}`),
	}
	gap.Part, gap.CompactionKey = 0, "informers/gap"
	list := []event.Event{gap}
	gone := map[string]bool{}
	for i, key := range slices.Sorted(maps.Keys(last)) {
		e := last[key]
		if e.Resource != kind.Resource || e.Op == event.Deleted {
			continue
		}
		if i%3 == 0 {
			gone[key] = true
			continue
		}
		e.Op, e.Type, e.Initial = event.Added, "dev.kubebridge.resource.added", true
		e.ID, e.Sequence, e.Time = e.ID+"/era-1", "00000001."+e.Sequence[9:], gapTime.Add(time.Second)
		list = append(list, e)
	}
	if len(gone) == 0 {
		t.Fatal("the test shows nothing: nothing is gone")
	}
	var rest []event.Event
	for _, e := range after {
		if gone[e.PartitionKey] {
			continue
		}
		if e.Resource == kind.Resource && e.Name != "" {
			e.Sequence = "00000001." + e.Sequence[9:]
		}
		rest = append(rest, e)
	}
	// A change of the first day comes when the last one is over.
	late := before[len(before)/5]
	late.ID, late.Name, late.PartitionKey = "late/1", "late", late.PartitionKey+"-late"
	late.Op, late.Type = event.Added, "dev.kubebridge.resource.added"
	third := len(rest) / 3
	return [][]event.Event{
		before[:cut/2], before[cut/2:], append(list, rest[:third]...), rest[third : 2*third],
		append([]event.Event{late}, rest[2*third:]...),
	}
}

// stateOf are the ids of what exists at a time, by a replay in the order of sequences.
func stateOf(events []event.Event, at time.Time) (ids []string) {
	last, eras := map[string]event.Event{}, map[string]string{}
	for _, e := range events {
		switch {
		case e.Time.After(at):
		case e.Op == event.Gap:
			eras[e.Resource] = e.Sequence[:9]
		case e.Name != "" && e.Sequence >= last[e.PartitionKey].Sequence:
			last[e.PartitionKey] = e
		}
	}
	for _, e := range last {
		if e.Op != event.Deleted && e.Sequence >= eras[e.Resource] {
			ids = append(ids, e.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// The state at any time, from DuckDB and from ClickHouse, is that of a replay of the stream: also
// with snapshot rows, late rows, a gap, and after compaction. All readers have the same rows.
func TestViews(t *testing.T) {
	needsDirectory(t)
	parts := script(t)
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	var events []event.Event
	for _, part := range parts {
		store(part)
		events = append(events, part...)
		o := options(t, url+"/K8S", dir)
		now := part[len(part)-1].Time
		o.now = func() time.Time { return now }
		_, err := Run(t.Context(), o)
		testkit.OK(t, err)
	}
	if n := len(column(t, openTest(t, dir), stateFilter(time.Time{}, time.Now()), "id")); n <= len(events) {
		t.Fatalf("the test shows nothing: %d rows of %d events, so no snapshot rows", n, len(events))
	}
	questions := map[string]map[string]string{
		"all":        same("SELECT concat(id, ' ', CASE WHEN snapshot THEN 'True' ELSE 'False' END, ' ', coalesce(data, 'None')) FROM all_rows"),
		"changes":    same("SELECT id FROM changes"),
		"churn":      same("SELECT sum(changes) FROM churn"),
		"coverage":   same("SELECT resource, gap, fromversion FROM coverage"),
		"gaps":       same("SELECT reason, resource FROM gaps"),
		"who":        same("SELECT count(*) FROM who"),
		"containers": same("SELECT count(*) FROM containers"),
		"images":     same("SELECT count(*) FROM images"),
		"owners":     same("SELECT count(*) FROM owners"),
		"current":    same("SELECT id FROM current"),
	}
	random, states := rand.New(rand.NewPCG(1, 1)), map[string]time.Time{}
	gap := parts[2][0].Time.Truncate(time.Second)
	for i := range 22 {
		at := morning.Add(time.Duration(random.Int64N(int64(4 * day)))).Truncate(time.Second)
		if i < 2 {
			at = gap.Add(time.Duration(2*i-1) * 10 * time.Second) // before, and when all has come again
		}
		name := fmt.Sprint("state ", i)
		states[name] = at
		questions[name] = map[string]string{
			"duckdb":     fmt.Sprintf("SELECT id FROM state_at('%s+00')", at.Format(time.DateTime)),
			"clickhouse": fmt.Sprintf("SELECT id FROM state_at(at = '%s')", at.Format(time.DateTime)),
		}
		questions[name]["trino"] = trinoState(at, "id")
		if i < 4 { // a question takes Spark seconds
			questions[name]["spark"] = fmt.Sprintf("SELECT id FROM state_at(TIMESTAMP '%s+00:00')", at.Format(time.DateTime))
		}
	}
	for _, when := range []string{"as written", "compacted"} {
		t.Run(when, func(t *testing.T) {
			got := askEngines(t, dir, questions)
			asked := slices.DeleteFunc(slices.Sorted(maps.Keys(got)), func(of string) bool { return of == "pyiceberg" })
			for _, of := range asked {
				for name, at := range states {
					if questions[name][of] == "" {
						continue
					}
					requireIDs(t, of+", "+name+", "+at.String(), got[of][name], stateOf(events, at))
				}
				requireIDs(t, of+", current", got[of]["current"], stateOf(events, time.Now()))
				if len(got[of]["gaps"]) != 1 || got[of]["gaps"][0][0] != "forgotten" {
					t.Errorf("%s: gaps %v", of, got[of]["gaps"])
				}
			}
			want := flattened(got["pyiceberg"]["all"])
			for _, of := range asked {
				if rows := flattened(got[of]["all"]); !slices.Equal(rows, want) {
					t.Errorf("%s has other rows than pyiceberg: %d and %d", of, len(rows), len(want))
				}
				for name, q := range questions {
					if q[of] == "" {
						continue
					}
					if a, b := flattened(got["duckdb"][name]), flattened(got[of][name]); !slices.Equal(a, b) {
						t.Errorf("%s: DuckDB %d rows, %s %d: %.300q and %.300q", name, len(a), of, len(b), a, b)
					}
				}
			}
		})
		upkeep(t, dir, Upkeep{Only: []string{"compact"}, Snapshots: day})
	}
}

// The notebook of the page runs without a display, and draws its three pictures.
func TestNotebook(t *testing.T) {
	python := os.Getenv("TABLE_PYTHON")
	if python == "" {
		t.Skip("needs Jupyter, DuckDB and pyiceberg: make test-table")
	}
	needsDirectory(t)
	here, err := os.Getwd()
	testkit.OK(t, err)
	url, dir := jetStream(t), t.ArtifactDir()
	store := newStream(t, url, sinks.Binary)
	for _, part := range script(t) {
		for i := range part { // as in a cluster, where controllers change most
			part[i].Manager = []string{"kubelet", "kubelet", "kube-controller-manager", "kubectl-apply"}[i%4]
		}
		store(part)
		_, err := Run(t.Context(), options(t, url+"/K8S", filepath.Join(dir, "table")))
		testkit.OK(t, err)
	}
	views := runProgram(t, "sql", "--to", filepath.Join(dir, "table"))
	testkit.OK(t, os.WriteFile(filepath.Join(dir, "views.sql"), []byte(views), 0o600))
	cmd := exec.CommandContext(t.Context(), python, filepath.Join(here, "testdata", "notebook.py"),
		filepath.Join(here, "..", "docs", "consumers", "analytics", "pictures.ipynb"))
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "HOME="+t.TempDir()), t.Output()
	out, err := cmd.Output()
	testkit.OK(t, err)
	if pictures, _ := filepath.Glob(filepath.Join(dir, "picture-*.png")); len(pictures) != 3 {
		t.Errorf("%d pictures", len(pictures))
	}
	t.Logf("%s", out)
}

func flattened(rows [][]string) (list []string) {
	for _, r := range rows {
		list = append(list, strings.Join(r, " "))
	}
	slices.Sort(list)
	return list
}

func requireIDs(t *testing.T, what string, rows [][]string, want []string) {
	t.Helper()
	if got := flattened(rows); !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("%s: %d objects, want %d\n%q\n%q", what, len(got), len(want), got, want)
	}
}

// Stream and state are lost together, after the state alone was. The views, and the snapshot rows,
// have what the first list of the new stream has, and no object that was deleted meanwhile. A loss
// within the stream is named.
func TestRecreatedViews(t *testing.T) {
	needsDirectory(t)
	second := func(n int) time.Time { return morning.Add(time.Duration(n) * time.Second) }
	first := `{"version":"1","first":true}`
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	store([]event.Event{
		deployment(event.Added, "web", 2, 0, second(2)), deployment(event.Added, "gone", 3, 0, second(3)),
		about(event.Synced, 4, 0, second(4), first),
		about(event.Gap, 10, 1, second(10), `{"reason":"forgotten","from":"","to":"10"}`),
		deployment(event.Added, "web", 2, 1, second(2)), deployment(event.Added, "gone", 3, 1, second(3)),
		about(event.Synced, 10, 1, second(11), first), deployment(event.Updated, "web", 12, 1, second(12)),
	})
	o := options(t, url+"/K8S", dir)
	o.now = func() time.Time { return second(20) }
	_, err := Run(t.Context(), o)
	testkit.OK(t, err)
	testkit.OK(t, streamOf(t, url).DeleteStream(t.Context(), "K8S"))
	store([]event.Event{
		deployment(event.Added, "web", 12, 0, second(12)), about(event.Synced, 30, 0, second(30), first),
		deployment(event.Updated, "web", 32, 0, second(32)), deployment(event.Added, "api", 33, 0, second(33)),
		about(event.Gap, 40, 0, second(40), `{"reason":"lost","from":"","to":"40"}`),
	})
	o.Recreated, o.now = true, func() time.Time { return second(50) }
	_, err = Run(t.Context(), o)
	testkit.OK(t, err)
	at := func(n int) map[string]string {
		moment, versions := second(n).Format(time.DateTime), "SELECT name, resourceversion FROM state_at("
		return map[string]string{
			"duckdb": versions + "'" + moment + "+00')", "clickhouse": versions + "at = '" + moment + "')",
			"spark": versions + "TIMESTAMP '" + moment + "+00:00')", "trino": trinoState(second(n), "name resourceversion"),
		}
	}
	for engine, got := range askEngines(t, dir, map[string]map[string]string{
		"current":    same("SELECT name, resourceversion FROM current"),
		"incomplete": same("SELECT informer, resource, gap FROM incomplete"),
		"most":       same("SELECT name, changes FROM most"),
		"before":     at(5), "forgotten": at(15),
	}) {
		if engine == "pyiceberg" {
			continue
		}
		requireIDs(t, engine+", current", got["current"], []string{"api 33", "web 32"})
		requireIDs(t, engine+", incomplete", got["incomplete"], []string{"workloads deployments.apps lost"})
		requireIDs(t, engine+", most", got["most"], []string{"web 2"})
		requireIDs(t, engine+", before", got["before"], []string{"gone 3", "web 2"})
		requireIDs(t, engine+", forgotten", got["forgotten"], []string{"gone 3", "web 12"})
	}
	tomorrow := morning.Truncate(day).Add(day + time.Minute)
	o = options(t, url+"/K8S", dir)
	o.now = func() time.Time { return tomorrow }
	_, err = Run(t.Context(), o)
	testkit.OK(t, err)
	lives := column(t, openTest(t, dir), iceberg.EqualTo(iceberg.Reference(colSnapshot), true), "name")
	if !slices.Equal(lives, []string{"api", "web"}) {
		t.Errorf("snapshot rows of %q", lives)
	}
	// What comes late is newer than the snapshot row, though its time is before.
	store([]event.Event{deployment(event.Updated, "web", 41, 0, second(60))})
	_, err = Run(t.Context(), o)
	testkit.OK(t, err)
	for engine, got := range askEngines(t, dir, map[string]map[string]string{"late": at(int(tomorrow.Sub(morning).Seconds()))}) {
		if engine != "pyiceberg" {
			requireIDs(t, engine+", late", got["late"], []string{"api 33", "web 41"})
		}
	}
}

// attributed is the event that says who made a change, or why that is not known.
func attributed(change event.Event, actor, unknown string) event.Event {
	e := change
	e.ID, e.Op, e.Type = change.ID+event.AttributedSuffix, event.Attributed, event.TypeAttributed
	e.Data = fmt.Appendf(nil, `{"change":%q,"op":%q,"unknown":%q}`, change.ID, change.Op, unknown)
	if actor != "" {
		e.Data = fmt.Appendf(nil, `{"change":%q,"op":%q,"user":%q}`, change.ID, change.Op, actor)
		e.Extensions = []event.Attribute{{Name: "actor", Value: actor}, {Name: "actorgrade", Value: "exact"}}
	}
	return e
}

// Who made a change is a row of its own, in a table of an earlier version too. The views have the
// user beside the change, and no row about a user is taken for a version of its object.
func TestActors(t *testing.T) {
	needsDirectory(t)
	second := func(n int) time.Time { return morning.Add(time.Duration(n) * time.Second) }
	url, dir := jetStream(t), tableDir(t)
	web, api := deployment(event.Added, "web", 1, 0, second(1)), deployment(event.Added, "api", 2, 0, second(2))
	earlier := changes
	earlier.schema = iceberg.NewSchema(0, changesSchema.Fields()[:changesSchema.NumFields()-len(actorColumns)]...)
	l := openTable(t, dir, earlier)
	schema, err := l.arrowSchema()
	testkit.OK(t, err)
	now, err := lib.SchemaToArrowSchema(changesSchema, nil, true, false)
	testkit.OK(t, err)
	files, err := l.write(t.Context(), schema, func(yield func(arrow.RecordBatch, error) bool) {
		for batch := range batchesOf(now, []*row{{Event: web, lane: "before"}, {Event: api, lane: "before"}}) {
			yield(array.NewRecordBatch(schema, batch.Columns()[:schema.NumFields()], batch.NumRows()), nil)
		}
	}, maxRunGroup)
	testkit.OK(t, err)
	testkit.OK(t, l.commit(t.Context(), change{add: files}))

	updated, deleted := deployment(event.Updated, "web", 3, 0, second(3)), deployment(event.Deleted, "api", 4, 0, second(4))
	missing := deployment(event.Updated, "web", 5, 0, second(5)) // the stream has no such change
	store := newStream(t, url, sinks.Flat)
	store([]event.Event{
		updated, deleted, attributed(web, "alice", ""), attributed(api, "bob", ""), attributed(updated, "", "no request"),
		attributed(deleted, "bob", ""), attributed(web, "alice", ""), attributed(missing, "dave", ""),
	})
	o := options(t, url+"/K8S", dir)
	o.now = func() time.Time { return second(20) }
	report, err := Run(t.Context(), o)
	testkit.OK(t, err)
	if report.Rows != 7 || report.Repeats != 1 || report.Other != 0 {
		t.Errorf("%+v", report)
	}
	tomorrow := morning.Truncate(day).Add(day + time.Minute)
	o.now = func() time.Time { return tomorrow }
	_, err = Run(t.Context(), o)
	testkit.OK(t, err)
	late := attributed(deployment(event.Updated, "web", 6, 0, second(6)), "dave", "")
	store([]event.Event{attributed(updated, "carol", ""), late}) // the first is a repeat
	_, err = Run(t.Context(), o)
	testkit.OK(t, err)
	isSnapshot, isLate := iceberg.EqualTo(iceberg.Reference(colSnapshot), true), iceberg.EqualTo(iceberg.Reference(colLate), true)
	if got := column(t, openTest(t, dir), isSnapshot, "id"); !slices.Equal(got, []string{updated.ID}) {
		t.Errorf("snapshot rows of %q", got)
	}
	if got := column(t, openTest(t, dir), isLate, "id"); len(got) > 0 {
		t.Errorf("%q would be read for each state", got)
	}
	state := "SELECT id, op FROM state_at("
	questions := map[string]map[string]string{
		"changes": same("SELECT name, resourceversion, op, concat(actor, actorunknown) FROM changes"),
		"who":     same("SELECT actor, sum(changes) FROM who GROUP BY actor"),
		"churn":   same("SELECT op, sum(changes) FROM churn GROUP BY op"),
		"current": same("SELECT id, op FROM current"),
		"most":    same("SELECT name, changes FROM most"),
		"then": {
			"duckdb":     state + second(20).Format("'"+time.DateTime+"+00')"),
			"clickhouse": state + second(20).Format("at = '"+time.DateTime+"')"),
			"spark":      state + second(20).Format("TIMESTAMP '"+time.DateTime+"+00:00')"),
			"trino":      trinoState(second(20), "id op"),
		},
	}
	for _, when := range []string{"as written", "compacted"} {
		for engine, got := range askEngines(t, dir, questions) {
			if engine == "pyiceberg" {
				continue
			}
			for name, want := range map[string][]string{
				"changes": {"api 2 added bob", "api 4 deleted bob", "web 1 added alice", "web 3 updated no request"},
				"who":     {"alice 1", "bob 2"},
				"churn":   {"added 2", "deleted 1", "updated 1"},
				"current": {updated.ID + " updated"},
				"then":    {updated.ID + " updated"},
				"most":    {"web 1"},
			} {
				requireIDs(t, engine+", "+when+", "+name, got[name], want)
			}
		}
		upkeep(t, dir, Upkeep{Only: []string{"compact"}, Snapshots: day, now: func() time.Time { return tomorrow }})
	}
}
