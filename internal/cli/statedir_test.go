package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// makeState makes a state directory whose units know objects with the given keys; one that begins
// with "-" is deleted as of version 12.
func makeState(t *testing.T, units map[string][]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	db, err := store.Open(statedb.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, keys := range units {
		ix, err := db.Indexer(store.IndexerConfig{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		batch := db.NewBatch()
		for _, text := range keys {
			if key, gone := strings.CutPrefix(text, "-"); gone {
				batch.Settle(ix, resource.Key(key), store.NewState{Record: store.Record{UID: "u", Version: "12", Deleted: true}})
			} else {
				batch.Settle(ix, resource.Key(key), store.NewState{Record: store.Record{UID: "u", Version: "7"}, Object: &resource.Object{Raw: []byte(`{"kind":"Pod"}`)}})
			}
		}
		if err := batch.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runStateDir is `bridge statedir …` on a directory.
func runStateDir(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := newStateDirCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{"--state-dir", dir}, args...))
	cmd.SetIn(strings.NewReader("yes\n"))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		fmt.Fprintln(&errs, err)
		code, _ = CodeOf(err)
	}
	return code, out.String(), errs.String()
}

// A unit is found by any name that distinguishes it from the others.
func TestUnitSearch(t *testing.T) {
	dir := makeState(t, map[string][]string{
		"all/pods": nil, "all/pods.metrics.k8s.io": nil, "all/deployments.apps": nil, "all/ingresses.networking.k8s.io/shop": nil,
		"all/events": nil, "all/events.events.k8s.io/shop": nil, "edge/deployments.apps/shop": nil, "edge/jobs.batch": nil, "pods/nodes": nil,
	})
	in, err := store.Inspect(statedb.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for meant, want := range map[string]string{
		"all/pods": "all/pods",
		// of the core group, which has the shorter name
		"pods":                               "all/pods",
		"pods.metrics.k8s.io":                "all/pods.metrics.k8s.io",
		"jobs":                               "edge/jobs.batch",
		"jobs.batch":                         "edge/jobs.batch",
		"edge/jobs":                          "edge/jobs.batch",
		"nodes":                              "pods/nodes",
		"deployments/shop":                   "edge/deployments.apps/shop",
		"deployments.apps/shop":              "edge/deployments.apps/shop",
		"edge/deployments/shop":              "edge/deployments.apps/shop",
		"all/deployments":                    "all/deployments.apps",
		"ingresses":                          "all/ingresses.networking.k8s.io/shop",
		"ingresses/shop":                     "all/ingresses.networking.k8s.io/shop",
		"all/ingresses.networking.k8s.io":    "all/ingresses.networking.k8s.io/shop",
		"all/ingresses":                      "all/ingresses.networking.k8s.io/shop",
		"deployments":                        "may be any of these, give one in full:\n  all/deployments.apps\n  edge/deployments.apps/shop",
		"deployments.apps":                   "may be any of these, give one in full:\n  all/deployments.apps\n  edge/deployments.apps/shop",
		"edge":                               "no informer has state under the name",
		"po":                                 "no informer has state under the name",
		"all/ingresses.networking.k8s.io/sh": "no informer has state under the name",
	} {
		unit, err := findUnit(in, meant)
		if err == nil && unit.Name != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want %s", meant, unit.Name, err, want)
		}
	}
}

// The objects that were probably meant are named, the nearest first.
func TestNearestObjects(t *testing.T) {
	dir := makeState(t, map[string][]string{"all/pods": {
		"dev/web", "shop/web-7d9c4-xkq2p", "shop/wbe", "shop/worker", "-shop/web-0", "shop/db", "shop/web-7d9c4-zzzzz", "test/weba", "test/wex", "worker-node",
	}})
	in, err := store.Inspect(statedb.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	unit, err := findUnit(in, "pods")
	if err != nil {
		t.Fatal(err)
	}
	for meant, want := range map[resource.Key][]string{
		"shop/web":         {"dev/web", "shop/web-7d9c4-xkq2p", "shop/web-7d9c4-zzzzz", "test/weba", "shop/wbe"},
		"web":              {"dev/web", "shop/web-7d9c4-xkq2p", "shop/web-7d9c4-zzzzz", "test/weba", "shop/wbe"},
		"shop/wroker":      {"shop/worker"},
		"shop/something":   nil,
		"shop/worker-node": {"worker-node", "shop/worker"},
	} {
		if got, err := nearKeys(unit, meant); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", meant, got, err, want)
		}
	}
}

// A deleted object is reported, and is no error.
func TestDeletedObject(t *testing.T) {
	dir := makeState(t, map[string][]string{"all/pods": {"-shop/web"}})
	code, stdout, stderr := runStateDir(t, dir, "get", "pods", "shop/web")
	if code != ExitClean || stdout != "" || stderr != "bridge: shop/web of all/pods is deleted as of version 12 (uid u)\n" {
		t.Errorf("get: %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ = runStateDir(t, dir, "get", "pods", "shop/web", "--output", "meta")
	if code != ExitClean || !strings.Contains(stdout, "version: 12\nstate:   deleted as of this version\n") {
		t.Errorf("get --output meta: %d, %q", code, stdout)
	}
}

// Records that can't be understood are reported, and can be deleted.
func TestDamagedRecords(t *testing.T) {
	dir := makeState(t, map[string][]string{"all/pods": {"shop/a", "shop/b"}})
	harm(t, dir, "r\x00\x00\x00\x01shop/b", "\xff")
	harm(t, dir, "p\x00\x00\x00\x01", "{")

	code, stdout, stderr := runStateDir(t, dir, "ls", "--output", "json")
	var report stateReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != ExitFailed || len(report.Units) != 1 {
		t.Fatalf("ls: %d, %q, %v", code, stdout, err)
	}
	if u := report.Units[0]; u.Objects != 1 || u.Watermark != nil || !strings.Contains(u.Problem, "1 record can't be understood") {
		t.Errorf("ls: %+v", u)
	}
	for _, want := range []string{"1 record can't be understood", "'bridge statedir reset all/pods'", "its record p does not parse"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("ls says %q, not %q", stderr, want)
		}
	}
	if code, _, stderr := runStateDir(t, dir, "get", "pods", "shop/b"); code != ExitFailed || !strings.Contains(stderr, "does not parse") {
		t.Errorf("get: %d, %q", code, stderr)
	}
	code, stdout, stderr = runStateDir(t, dir, "reset", "pods", "--yes")
	if want := "all/pods has forgotten its position (one that can't be understood), 1 object, 0 tombstones, 1 record that can't be understood, 0 changes waiting\n"; code != ExitClean || stdout != want {
		t.Errorf("reset: %d, %q, %q", code, stdout, stderr)
	}
	if code, stdout, stderr = runStateDir(t, dir, "ls"); code != ExitClean || !strings.Contains(stdout, "No informer has any state.") {
		t.Errorf("ls afterwards: %d, %q, %q", code, stdout, stderr)
	}
}

// A reset does not pretend to repair damaged files.
// Compaction would come upon the damage again, whatever a reset had deleted.
func TestResetOfDamagedFiles(t *testing.T) {
	var keys []string
	for i := range 500 {
		keys = append(keys, fmt.Sprint("shop/web-", i))
	}
	dir := makeState(t, map[string][]string{"all/pods": keys})
	// what lay in the log is a table afterwards
	db, err := store.Open(statedb.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	tables, err := filepath.Glob(filepath.Join(dir, "db", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	var bodies string // of the largest table
	var data []byte
	for _, table := range tables {
		content, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		if len(content) > len(data) {
			bodies, data = table, content
		}
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(bodies, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"reset", "pods", "--yes"}, {"reset", "pods", "--yes", "--keep-objects"}, {"ls"}} {
		code, _, stderr := runStateDir(t, dir, args...)
		if code != ExitFailed || !strings.Contains(stderr, "; nothing was changed: restore it from a copy") {
			t.Errorf("%v: %d, %q", args, code, stderr)
		}
	}
}

// harm changes a value behind the store's back.
func harm(t *testing.T, dir, key, value string) {
	t.Helper()
	db, err := pebble.Open(filepath.Join(dir, "db"), &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Set([]byte(key), []byte(value), pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

type quiet struct{ pebble.Logger }

func (quiet) Infof(string, ...any) {}

// An answer in a pipe is not an answer: whoever writes scripts says --yes.
func TestResetPrompt(t *testing.T) {
	dir := makeState(t, map[string][]string{"all/pods": {"shop/a"}})
	code, _, stderr := runStateDir(t, dir, "reset", "pods")
	if code != ExitRefused || !strings.Contains(stderr, "say --yes") {
		t.Errorf("reset: %d, %q", code, stderr)
	}
	if code, stdout, _ := runStateDir(t, dir, "ls"); code != ExitClean || !strings.Contains(stdout, "all/pods") {
		t.Errorf("ls: %d, %q", code, stdout)
	}
}

// A reset reports what would never be sent.
func TestResetWithBacklog(t *testing.T) {
	dir := makeState(t, map[string][]string{"all/pods": {"shop/a"}})
	db, err := store.Open(statedb.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods"})
	if err != nil {
		t.Fatal(err)
	}
	batch := db.NewBatch()
	batch.AppendLog(ix, store.LogEntry{Position: 1, Data: make([]byte, 2048)})
	if err := errors.Join(batch.Commit(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, stdout, _ := runStateDir(t, dir, "ls"); !strings.Contains(stdout, "  1 (2.0 KiB)  ") {
		t.Errorf("ls: %q", stdout)
	}
	if _, _, stderr := runStateDir(t, dir, "reset", "pods"); !strings.Contains(stderr, "  waiting:  1 change\n") || !strings.Contains(stderr, "never be sent") {
		t.Errorf("reset: %q", stderr)
	}
	if _, _, stderr := runStateDir(t, dir, "reset", "pods", "--keep-objects"); strings.Contains(stderr, "never be sent") {
		t.Errorf("reset --keep-objects: %q", stderr)
	}
}

// An object is printed as stored, or with line breaks.
func TestPrintedObject(t *testing.T) {
	const body = `{"kind":"Pod","spec":{"b":1,"a":"<"}}`
	for pretty, want := range map[bool]string{
		false: body + "\n",
		true:  "{\n  \"kind\": \"Pod\",\n  \"spec\": {\n    \"b\": 1,\n    \"a\": \"<\"\n  }\n}\n",
	} {
		var out bytes.Buffer
		if err := printBody(&out, []byte(body), pretty); err != nil || out.String() != want {
			t.Errorf("pretty %v: %q, %v", pretty, out.String(), err)
		}
	}
}

// An object of an earlier version is shown as such.
func TestStaleObjectShown(t *testing.T) {
	dir := makeState(t, nil)
	db, err := store.Open(statedb.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods"})
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"kind":"Pod","metadata":{"resourceVersion":"7"}}`
	batch := db.NewBatch()
	batch.Settle(ix, "shop/a", store.NewState{Record: store.Record{UID: "u", Version: "9"}, Object: &resource.Object{Raw: []byte(body)}})
	if err := errors.Join(batch.Commit(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := runStateDir(t, dir, "get", "pods", "shop/a"); code != 0 || out != body+"\n" || !strings.Contains(errs, "this is version 7 of shop/a; of version 9") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if _, out, _ := runStateDir(t, dir, "get", "pods", "shop/a", "--output", "meta"); !strings.Contains(out, "version: 9") || !strings.Contains(out, ", of version 7") {
		t.Errorf("meta: %q", out)
	}
}

// TestObjectNamesForTerminals prints the name of an object that sets the title of a terminal.
func TestObjectNamesForTerminals(t *testing.T) {
	const name = "shop/a\x1b]0;owned\x07\u009b2J\x00\r"
	obeyed := func(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }
	stored := store.SettledState{}
	stored.UID, stored.Version = name, name
	for how, print := range map[string]func(*bytes.Buffer) error{
		"get --output meta": func(out *bytes.Buffer) error {
			return writeMeta(out, store.Unit{}, resource.Key(name), stored)
		},
		"get on a terminal": func(out *bytes.Buffer) error {
			return printBody(out, []byte(`{"metadata": {"name": "shop/a]0;owned`+"\u009b"+`2J"}}`), true)
		},
	} {
		var out bytes.Buffer
		if err := print(&out); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(out.String(), obeyed) || !strings.Contains(out.String(), `\u009b2J`) {
			t.Errorf("%s prints %q", how, out.String())
		}
	}
}

// A backup that is made while a bridge runs is put in the place of its state: the next bridge
// continues, without a gap and without sending anything again.
func TestStateBackup(t *testing.T) {
	url, js := newJetStream(t)
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "monday")
	file, state := filepath.Join(dir, "bridge.yaml"), filepath.Join(dir, "state")
	testkit.OK(t, os.WriteFile(file, fmt.Appendf(nil, `
kubernetes: {kubeconfig: %s}
state: {dir: %s}
admin: {address: "%s"}
informers: [{name: all, resources: [pods]}]
sinks: [{name: bus, nats: {servers: ["%s"]}}]
`, kubeconfigFile(t), state, testkit.Address(t), url), 0o600))
	t.Setenv("BRIDGE_CONFIG", file)
	runBridge := func(while func()) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan int, 1)
		go func() { ended <- run(ctx, []string{"run"}, nil, io.Discard, io.Discard) }()
		testkit.Eventually(t, "the bridge is ready", func() bool {
			return run(ctx, []string{"status"}, nil, io.Discard, io.Discard) == ExitClean
		})
		while()
		cancel()
		if code := <-ended; code != ExitClean {
			t.Errorf("exit code %d", code)
		}
	}
	stored := func() uint64 {
		stream, err := js.Stream(t.Context(), "K8S")
		testkit.OK(t, err)
		return stream.CachedInfo().State.Msgs
	}
	command := func(args ...string) (code int, out string) {
		var stdout, stderr testkit.Buffer
		code = run(t.Context(), append([]string{"statedir"}, args...), nil, &stdout, &stderr)
		return code, stdout.String() + stderr.String()
	}
	runBridge(func() {
		testkit.Eventually(t, "two pods and the end of the list are settled", func() bool {
			if stored() < 3 {
				return false
			}
			code, out := command("backup", backup)
			if code != ExitClean || !strings.HasPrefix(out, backup+": ") {
				t.Fatalf("exit code %d: %s", code, out)
			}
			in, err := store.Inspect(statedb.Options{Dir: backup})
			testkit.OK(t, err)
			units, err := in.Units()
			testkit.OK(t, err)
			position, err := units[0].Position()
			testkit.OK(t, errors.Join(err, in.Close()))
			if position.Version == "" {
				testkit.OK(t, os.RemoveAll(backup))
			}
			return position.Version != ""
		})
	})
	before := stored()
	if code, out := command("restore", backup); code != ExitFailed || !strings.Contains(out, "move it away") {
		t.Errorf("over a state: exit code %d: %s", code, out)
	}
	testkit.OK(t, os.RemoveAll(state))
	if code, out := command("restore", backup); code != ExitClean {
		t.Fatalf("exit code %d: %s", code, out)
	}
	runBridge(func() {})
	if after := stored(); after != before {
		t.Errorf("the stream had %d messages, and has %d", before, after)
	}
	if code, out := command("restore", filepath.Join(dir, "none")); code != ExitRefused {
		t.Errorf("of nothing: exit code %d: %s", code, out)
	}
}
