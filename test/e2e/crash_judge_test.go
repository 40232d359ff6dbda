package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// converge waits until both sinks hold the state of the cluster: from then on nothing is on its way.
func (c *crashRun) converge() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	for c.bridge.WaitReady(ctx) != nil && ctx.Err() == nil { // it ended by itself
		c.exited++
		must(c.t, c.bridge.Start())
	}
	must(c.t, context.Cause(ctx))
	// What is wrong in the end is for the verdict to say.
	for deadline := time.Now().Add(testPatience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		exist := c.exist()
		if len(c.stale(exist, c.stream))+len(c.stale(exist, c.records)) == 0 {
			return
		}
	}
}

func (c *crashRun) stale(exist []truth.Change, r reader) []string {
	events, err := r.Refresh(c.ctx)
	if err != nil {
		return []string{err.Error()}
	}
	return check.FinalState(exist, events, check.Options{})
}

// exist are the objects that the API server has, in their newest versions.
func (c *crashRun) exist() []truth.Change {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, testPatience)
	defer cancel()
	now, err := truth.Watch(ctx, c.Admin(), c.collections()...)
	must(c.t, err)
	defer now.Stop()
	return truth.Snapshot(now.Changes())
}

// witnessed are the changes that any ledger has. Only the last one may not have a hole: the others end with their API server.
func (c *crashRun) witnessed() (changes []truth.Change) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ledger := range c.ledgers {
		changes = append(changes, ledger.Changes()...)
	}
	must(c.t, c.ledgers[len(c.ledgers)-1].Err())
	return changes
}

// judge reports, and fails for whatever is wrong.
func (c *crashRun) judge(took time.Duration) {
	c.t.Helper()
	changes, exist := c.witnessed(), c.exist()
	c.t.Logf("crash: kills %d (and %d ends by itself), API servers killed %d, brokers cut off %d, changes witnessed %d, seed %d, took %v",
		*crashKills, c.exited, c.restarts, c.cuts, len(changes), c.seed, took.Round(time.Second))
	c.t.Logf("crash: the bridge asked for %s", c.asked())
	for name, r := range map[string]reader{"JetStream": c.stream, "Kafka": c.records} {
		events, err := r.Refresh(c.ctx)
		must(c.t, err)
		v, err := crash.Judge(changes, exist, events)
		must(c.t, err)
		c.t.Logf("crash: %s: %s", name, v)
		if name == "JetStream" && v.Duplicates > 0 {
			c.t.Errorf("JetStream drops what comes twice by its id, but holds %d events twice", v.Duplicates)
		}
		c.report(name, v, events)
	}
	const fewest = 15 // on the slowest machine
	if len(changes) < *crashKills*fewest {
		c.t.Errorf("only %d changes: the test shows nothing", len(changes))
	}
}

// asked sums up what the lives of the bridge have come to.
func (c *crashRun) asked() string {
	probes, watches := 0, 0
	requests := c.requestsSince(0)
	for _, r := range requests {
		switch {
		case r.Verb == "list" && r.Query("limit") == "1":
			probes++
		case r.Verb == "watch" && r.Query("sendInitialEvents") == "":
			watches++
		}
	}
	byWatch, byPage := lists(requests)
	return fmt.Sprintf("%d probes, %d watches, %d lists", probes, watches, byWatch+byPage)
}

// report fails for the problems, and keeps the stream for who has to find their cause.
func (c *crashRun) report(name string, v *crash.Verdict, events []read.Event) {
	c.t.Helper()
	if len(v.Problems) == 0 {
		return
	}
	const most = 20
	c.t.Errorf("%s: %d problems, among them:\n%s", name, len(v.Problems), strings.Join(v.Problems[:min(len(v.Problems), most)], "\n"))
	var lines strings.Builder
	for i := range events {
		fmt.Fprintln(&lines, crash.Describe(&events[i]))
	}
	must(c.t, os.WriteFile(filepath.Join(c.t.ArtifactDir(), name+".txt"), []byte(lines.String()), 0o600))
}
