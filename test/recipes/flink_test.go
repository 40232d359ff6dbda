package recipes_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/test/e2e/crash"
)

// TestFlinkTable has Flink make a table of a topic in Debezium's form: updates, deletes, objects
// that come back under their names, and repeats. The bridge is killed meanwhile.
func TestFlinkTable(t *testing.T) {
	l := newLab(t, "flink.md")
	const question = `SELECT 'configmaps/shop/' || name || ' ' || resourceversion FROM configmaps;`
	must(t, os.WriteFile(filepath.Join(l.dir, "all.sql"), []byte(question), 0o600))
	ask := []string{
		"sh", "-c", "java --add-opens=java.base/java.util=ALL-UNNAMED -cp 'jars/*' " +
			"Sql.java table.sql all.sql 2>> java.log | sed 's/^+I.//; s/.$//'",
	}
	l.startBridge(l.pageSinks())
	l.keep()
	churn := crash.StartChurn(t.Context(), l.client, shop, rand.Uint64(), 4)
	for range 3 {
		time.Sleep(3 * time.Second)
		l.bridge.Kill()
		must(t, l.bridge.StartAndWait(t.Context()))
	}
	must(t, churn.Stop())
	l.settle()
	l.requireTable("after kills", ask...)
	// What comes again are the newest records of each partition: fewer than there are in it.
	l.repeatRecords("rows.configmaps", func(r *kgo.Record) bool { return r.Offset > 20 })
	l.requireTable("after repeats", ask...)
	t.Logf("%d changes", l.ledger.Len())
}

// checkpoints are the files that complete Flink's checkpoints.
func (l *lab) checkpoints() []string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, "checkpoints", "*", "chk-*", "_metadata"))
	must(l.t, err)
	return found
}

// awaitCheckpoint waits for one that is not among some.
func (l *lab) awaitCheckpoint(before []string) {
	l.t.Helper()
	isNew := func(path string) bool { return !slices.Contains(before, path) }
	for late := time.Now().Add(2 * time.Minute); !slices.ContainsFunc(l.checkpoints(), isNew); {
		if time.Now().After(late) {
			text, _ := os.ReadFile(filepath.Join(l.dir, "java.log"))
			l.t.Fatalf("no checkpoint\n%s", text[max(0, len(text)-8000):])
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// kept is the table that keep.sh keeps: the last value of each key.
func (l *lab) kept() (rows []string) {
	l.t.Helper()
	table := map[string]string{}
	for _, r := range l.records("kept.configmaps") {
		var row struct{ Name, ResourceVersion string }
		if len(r.Value) > 0 {
			must(l.t, json.Unmarshal(r.Value, &row))
			table[string(r.Key)] = "configmaps/shop/" + row.Name + " " + row.ResourceVersion
		} else {
			delete(table, string(r.Key))
		}
	}
	return slices.Sorted(maps.Values(table))
}

// TestFlinkKilled kills Flink again and again while it keeps a table in a compacted topic, and the
// bridge too. Flink continues from its newest checkpoint, and the table ends as the truth.
func TestFlinkKilled(t *testing.T) {
	l := newLab(t, "flink.md")
	l.startBridge(l.pageSinks())
	l.keep()
	churn := crash.StartChurn(t.Context(), l.client, shop, rand.Uint64(), 4)
	var flink *exec.Cmd
	keep := func() {
		t.Helper()
		flink, _ = l.start(t.Context(), "sh", "keep.sh")
		must(t, flink.Start())
	}
	kill := func() {
		t.Helper()
		must(t, flink.Process.Kill())
		_ = flink.Wait() // it was killed
	}
	keep()
	const kills = 3
	for range kills {
		l.awaitCheckpoint(l.checkpoints())
		time.Sleep(rand.N(1500 * time.Millisecond)) // at any moment between two checkpoints
		kill()
		l.bridge.Kill()
		must(t, l.bridge.StartAndWait(t.Context()))
		keep()
	}
	l.awaitCheckpoint(l.checkpoints())
	must(t, churn.Stop())
	l.settle()
	want := l.configmaps()
	late := time.Now().Add(time.Minute)
	for !slices.Equal(l.kept(), want) && time.Now().Before(late) {
		time.Sleep(time.Second)
	}
	kill()
	l.same("what Flink has kept", l.kept(), want)
	log, err := os.ReadFile(filepath.Join(l.dir, "java.log"))
	must(t, err)
	if n := strings.Count(string(log), "from Savepoint"); n != kills {
		t.Errorf("%d starts continued from a checkpoint, want %d", n, kills)
	}
	t.Logf("%d changes, %d records written", l.ledger.Len(), len(l.records("kept.configmaps")))
}
