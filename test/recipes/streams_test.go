package recipes_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// pageSinks are the informers and sinks of the bridge.yaml of a page.
func (l *lab) pageSinks() string {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "bridge.yaml"))
	must(l.t, err)
	_, rest, found := strings.Cut(string(text), "informers:")
	sinks, _, ends := strings.Cut(rest, "admin:")
	if !found || !ends {
		l.t.Fatalf("bridge.yaml has other keys: %s", text)
	}
	return "informers:" + sinks
}

// requireTable compares a table of configmaps, that a command prints, with the truth.
func (l *lab) requireTable(what string, command ...string) {
	l.t.Helper()
	l.same(what, lines(l.run(command...)), l.configmaps())
}

// configmaps are those that exist.
func (l *lab) configmaps() (exist []string) {
	l.t.Helper()
	must(l.t, l.ledger.Err())
	for _, ch := range truth.Alive(l.ledger.Changes()) {
		if ch.Resource == "configmaps" {
			exist = append(exist,
				"configmaps/shop/"+ch.Metadata.Name+" "+ch.Metadata.ResourceVersion)
		}
	}
	slices.Sort(exist)
	return exist
}

// tables is the command of kafka-streams.md.
func tables(name string) []string {
	return []string{"sh", "-c", "exec java -cp 'jars/*' Tables.java " + name + " 2>> java.log"}
}

// TestTables has the program of kafka-streams.md read topics with updates, deletes, objects that
// come back under their names, and repeats. The bridge and the program are killed meanwhile.
func TestTables(t *testing.T) {
	l := newLab(t, "kafka-streams.md")
	l.startBridge(l.pageSinks())
	l.keep()
	churn := crash.StartChurn(t.Context(), l.client, shop, rand.Uint64(), 4)
	for range 2 {
		l.interrupt([][]string{tables("current")}, 7*time.Second)
		l.bridge.Kill()
		must(t, l.bridge.StartAndWait(t.Context()))
	}
	must(t, churn.Stop())
	l.settle()
	l.requireTable("after kills, current", tables("current")...)
	l.repeatRecords("history.configmaps", func(r *kgo.Record) bool { return r.Offset%2 == 0 })
	l.requireTable("after repeats, history", tables("history")...)
	l.forget()
	l.settle()
	l.requireTable("after a forgotten gap, current", tables("current")...)
	t.Logf("%d changes", l.ledger.Len())
}
