package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// converge waits until the sinks hold the state of the cluster: from then on nothing is in flight.
func (c *crashRun) converge() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Minute)
	defer cancel()
	for c.bridge.WaitReady(ctx) != nil && ctx.Err() == nil {
		c.startAgain()
	}
	must(c.t, context.Cause(ctx))
	exist := c.exist()
	// What is wrong in the end is among the findings.
	for deadline := time.Now().Add(testPatience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		stale := 0
		for _, s := range c.sinks {
			stale += len(c.stale(exist, s.reader))
		}
		for _, url := range c.buckets {
			stale += len(c.bucketProblems(url, exist))
		}
		if stale == 0 {
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

// exists are the objects that the API server has, in their newest versions.
func (l *lab) exists(collections []truth.Collection) []truth.Change {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, testPatience)
	defer cancel()
	now, err := truth.Watch(ctx, l.Admin(), collections...)
	must(l.t, err)
	defer now.Stop()
	return truth.Snapshot(now.Changes())
}

func (c *crashRun) exist() []truth.Change { c.t.Helper(); return c.exists(c.collections()) }

// witnessed are the changes that any ledger has. Only the last one may not have a hole: the others
// end with their API server.
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

// judge fills in the report, and fails for whatever is wrong.
func (c *crashRun) judge() {
	c.t.Helper()
	changes, exist := c.witnessed(), c.exist()
	c.report.Requests = c.asked()
	for _, s := range c.sinks {
		_, err := s.reader.Refresh(c.ctx)
		must(c.t, err)
	}
	for _, url := range c.buckets {
		c.complain("bucket", c.bucketProblems(url, exist), nil)
	}
	for n := range c.sinks {
		c.report.Sinks = append(c.report.Sinks, c.judgeSink(n, changes, exist))
	}
}

func (c *crashRun) judgeSink(n int, changes, exist []truth.Change) crash.SinkReport {
	c.t.Helper()
	var own crash.Sink
	var others []crash.Sink
	for i, s := range c.sinks {
		events, err := s.reader.Refresh(c.ctx)
		must(c.t, err)
		if sink := (crash.Sink{Events: events, Outages: s.outages}); i == n {
			own = sink
		} else {
			others = append(others, sink)
		}
	}
	s := c.sinks[n]
	v, err := crash.Judge(changes, exist, own.Events)
	must(c.t, err)
	r := crash.SinkReport{Name: s.name, Findings: v, Repeats: crash.Explain(c.lives, own, others...)}
	problems := slices.Concat(v.Problems, v.Backwards)
	if !s.forgets {
		problems = append(problems, r.Repeats.Problems...)
	}
	if *crashUnreported {
		problems = append(problems, v.Silent...)
	}
	if !s.keeps && v.Duplicates > 0 {
		problems = append(problems, fmt.Sprintf("it drops what comes again by its id, but holds %d events twice", v.Duplicates))
	}
	if problem := c.verify(c.bridge, s.reader); problem != "" && (!s.forgets || !onlyDisorder.MatchString(problem)) {
		problems = append(problems, "bridge verify: "+problem)
	}
	c.complain(s.name, problems, own.Events)
	return r
}

// onlyDisorder matches what verify says of a stream in which an event came that was lost before.
var onlyDisorder = regexp.MustCompile(`(?m)^bridge: wrong: \d+ disorder$`)

// gaps are those that any sink got.
func (c *crashRun) gaps() (n int) {
	for _, s := range c.report.Sinks {
		n += s.Findings.Gaps
	}
	return n
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

// publishReport prints it, and leaves it as a file.
func (c *crashRun) publishReport() {
	c.t.Helper()
	text := c.report.String()
	c.t.Logf("\n%s", text)
	must(c.t, os.WriteFile(filepath.Join(c.t.ArtifactDir(), "crash-report.txt"), []byte(text), 0o600))
	if *crashFile != "" {
		must(c.t, appendTo(*crashFile, text+"\n"))
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

// complain fails for the problems, and keeps the stream for who has to find their cause.
func (c *crashRun) complain(name string, problems []string, events []read.Event) {
	c.t.Helper()
	if len(problems) == 0 {
		return
	}
	const most = 20
	c.t.Errorf("%s: %d problems, among them:\n%s", name, len(problems), strings.Join(problems[:min(len(problems), most)], "\n"))
	var lines strings.Builder
	for i := range events {
		fmt.Fprintf(&lines, "%s %s\n", events[i].At.Format("15:04:05.000"), crash.Describe(&events[i]))
	}
	file := strings.Fields(strings.ReplaceAll(name, ",", ""))[0] + ".txt"
	must(c.t, os.WriteFile(filepath.Join(c.t.ArtifactDir(), file), []byte(lines.String()), 0o600))
}
