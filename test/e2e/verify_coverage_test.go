package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/kubebridge/bridge/test/e2e/check"
)

// The stream and the history of a bridge, through stops, kills and a gap, have what the other one
// reports to have: no false alarm.
func TestVerifyCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane of its own")
	}
	t.Parallel()
	c := ownCluster(t, "coverage", "--etcd-compaction-interval=0")
	l := newLab(t, c)
	w := &writers{lab: l, by: map[string]string{}}
	ledger := l.witness(l.written()...)
	b := l.bridge("bridge", written+embedded+"  - {name: kept, history: {retention: 0}}\n")
	l.start(b)
	w.round("running")
	w.storm()
	l.stop(b)
	w.round("stopped")
	l.start(b)
	w.round("resumed")
	b.Kill()
	w.round("killed")
	l.start(b)
	stream := jetStream(b)
	l.complete("all writes", stream, ledger, check.Options{Informers: informerOf("app", l.written()...)})
	b.Kill()
	w.round("forgotten")
	l.operate("compact")
	l.operate("restart-apiserver")
	l.start(b)
	w.round("after")
	l.stop(b) // all is sent
	l.start(b)
	out, err := b.Output(l.ctx, "verify", "--coverage", "-o", "json")
	var r struct {
		OK      bool
		Faults  map[string]int
		Found   []json.RawMessage
		Notes   []string
		Covered struct{ Resources, Versions int }
	}
	if json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%+v, notes %q", r.Covered, r.Notes)
	if !r.OK || r.Covered.Resources != len(l.written()) || r.Covered.Versions < 200 {
		t.Errorf("%v\n%s", r.Faults, r.Found[:min(5, len(r.Found))])
	}
	l.stop(b)
}
