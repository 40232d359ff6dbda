package recipes_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/test/e2e/crash"
)

// TestFlinkTable has Flink make a table of a topic in Debezium's form, with updates, deletes, objects
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
