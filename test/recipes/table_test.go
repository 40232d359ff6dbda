package recipes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/test/e2e/crash"
)

// tableLab has bridge-table, and an archive of the same stream, which answers the same questions. A
// history beside the stream would not do: what is sent again after a kill has another time.
type tableLab struct {
	*lab
	python string // with the packages of the module table
	from   string
}

// killWriter runs bridge-table again and again, and kills each after a moment, until ctx ends.
func (l *tableLab) killWriter(ctx context.Context) (kills int) {
	for ctx.Err() == nil {
		cmd, _ := l.start(l.t.Context(), "./bin/bridge-table", "run",
			"--from", l.from, "--to", "table", "--interval", "200ms")
		if err := cmd.Start(); err != nil {
			l.t.Error(err)
			return kills
		}
		time.Sleep(time.Duration(300+rand.IntN(2000)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		kills++
	}
	return kills
}

// losesTime stops the bridge while objects change, and has etcd and the API server forget how they
// changed: the bridge has a gap.
func (l *tableLab) losesTime() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	_, err := l.bridge.Stop(ctx)
	must(l.t, err)
	time.Sleep(2 * time.Second) // objects change
	for _, operation := range []string{"compact", "restart-apiserver?signal=KILL"} {
		_, err := l.plane.Operate(ctx, operation)
		must(l.t, err)
	}
	must(l.t, l.bridge.StartAndWait(ctx))
}

// readToEnd runs bridge-table until nothing comes any more.
func (l *tableLab) readToEnd() {
	l.t.Helper()
	for isNew := true; isNew; time.Sleep(time.Second) {
		said := l.run("./bin/bridge-table", "run", "--from", l.from, "--to", "table", "--once")
		l.t.Log(said)
		isNew = !strings.Contains(said, "0 messages, ")
	}
}

// state is what existed, by the history, and the gaps that it names.
func (l *tableLab) state(at string) (objects, gaps []string) {
	l.t.Helper()
	cmd, said := l.start(l.t.Context(), "./bin/bridge", "state", "-A", "--at", at, "-o", "json", "--dir", "archive")
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%v\n%s", err, said)
	}
	for line := range strings.Lines(string(out)) {
		var document struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name            string `json:"name"`
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
			Gap struct {
				Reason   string `json:"reason"`
				Resource string `json:"resource"`
				From     string `json:"from"`
			} `json:"gap"`
		}
		must(l.t, json.Unmarshal([]byte(line), &document))
		if o := document; o.Kind != "" {
			objects = append(objects, o.Kind+" "+o.Metadata.Name+" "+o.Metadata.ResourceVersion)
		} else if g := o.Gap; g.Reason == "expired" {
			gaps = append(gaps, g.Resource+" "+g.Reason+" "+g.From)
		}
	}
	slices.Sort(objects)
	slices.Sort(gaps)
	return objects, gaps
}

var metadataFile = regexp.MustCompile(`iceberg_scan\('([^']+/changes/[^']+)'\)`)

// askTable asks DuckDB and ClickHouse.
func (l *tableLab) askTable(questions map[string]map[string]string) (got map[string]map[string][][]string) {
	l.t.Helper()
	asked := map[string]any{"dir": l.dir + "/table", "questions": questions}
	for _, engine := range []string{"duckdb", "clickhouse"} {
		asked[engine] = l.run("./bin/bridge-table", "sql", "--to", "table", "--engine", engine)
	}
	asked["metadata"] = metadataFile.FindStringSubmatch(asked["duckdb"].(string))[1]
	in, err := json.Marshal(asked)
	must(l.t, err)
	cmd := exec.CommandContext(l.t.Context(), l.python, "../../table/testdata/ask.py")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), l.t.Output()
	out, err := cmd.Output()
	must(l.t, err)
	must(l.t, json.Unmarshal(out, &got))
	return got
}

// The state at a time is that of bridge state, object by object, and the gaps that bridge state
// names are in the table coverage: over kills of the bridge and of bridge-table, and changes that
// the bridge can't know.
func TestTableStates(t *testing.T) {
	l := &tableLab{python: installed(t, "TABLE_PYTHON"), lab: newLab(t, "analytics.md")}
	l.from = "nats://" + l.addresses[natsAddress] + "/K8S"
	l.startBridge(fmt.Sprintf(`
informers:
  - {name: workloads, resources: [pods, deployments.apps, replicasets.apps], namespaces: [shop]}
  - {name: settings, resources: [configmaps], namespaces: [shop]}
sinks:
  - {name: stream, nats: {embedded: true, servers: ["nats://%s"]}}
`, l.addresses[natsAddress]))
	began := time.Now()
	churn := crash.StartChurn(t.Context(), l.client, shop, rand.Uint64(), 4)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writer sync.WaitGroup
	kills := 0
	writer.Go(func() { kills = l.killWriter(ctx) })
	for range 2 {
		for range 4 {
			time.Sleep(time.Duration(1000+rand.IntN(3000)) * time.Millisecond)
			l.bridge.Kill()
			must(t, l.bridge.StartAndWait(t.Context()))
		}
		l.losesTime()
	}
	ended := time.Now()
	must(t, churn.Stop())
	stop()
	writer.Wait()
	t.Logf("bridge-table was killed %d times", kills)
	l.readToEnd()
	l.run("./bin/bridge", "archive", "--from", l.from, "--dir", "archive", "--once")

	objects, gaps, named := map[string][]string{}, map[string][]string{}, map[string]int{}
	const (
		gap     = "SELECT concat(resource, ' ', gap, ' ', fromversion) FROM coverage WHERE gap <> ''"
		stateAt = "SELECT concat(kind, ' ', name, ' ', resourceversion) FROM state_at("
		inSQL   = "2006-01-02 15:04:05.000"
	)
	questions := map[string]map[string]string{"gaps": {"duckdb": gap, "clickhouse": gap}}
	for range 100 {
		at := began.Add(rand.N(ended.Sub(began))).UTC().Truncate(time.Millisecond)
		moment := at.Format(inSQL)
		objects[moment], gaps[moment] = l.state(at.Format(time.RFC3339Nano))
		for _, name := range gaps[moment] {
			named[name]++
		}
		questions[moment] = map[string]string{
			"duckdb":     stateAt + "'" + moment + "+00')",
			"clickhouse": stateAt + "at = '" + moment + "')",
		}
		const within = " BETWEEN since AND until"
		questions["gaps at "+moment] = map[string]string{
			"duckdb":     gap + " AND '" + moment + "+00'" + within,
			"clickhouse": gap + " AND toDateTime64('" + moment + "', 3, 'UTC')" + within,
		}
	}
	if t.Logf("gaps, and in how many states: %v", named); len(named) < 2 {
		t.Error("the test shows less than it should")
	}
	for engine, got := range l.askTable(questions) {
		if engine == "pyiceberg" {
			continue
		}
		if all := flat(got["gaps"]); len(all) > 2*4 { // of each kind, for each time that was lost
			t.Errorf("%s: coverage has more gaps than there can be: %q", engine, all)
		}
		for moment := range objects {
			if state := flat(got[moment]); !slices.Equal(state, objects[moment]) || len(state) == 0 {
				l.same(engine+", state at "+moment, state, objects[moment])
			}
			for _, name := range gaps[moment] {
				if covered := flat(got["gaps at "+moment]); !slices.Contains(covered, name) {
					t.Errorf("%s: coverage at %s has the gaps %q, and not %s", engine, moment, covered, name)
				}
			}
		}
	}
}

func flat(rows [][]string) (all []string) {
	for _, row := range rows {
		all = append(all, row...)
	}
	slices.Sort(all)
	return all
}
