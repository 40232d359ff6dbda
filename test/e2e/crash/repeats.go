package crash

import (
	"fmt"
	"time"

	"github.com/kubebridge/bridge/test/e2e/read"
)

// What a bridge that works may need, however loaded the machine is.
const (
	// ackSlack is for the way of an acknowledgement into a commit: how long before the last commit
	// a broker may have stored what that commit does not know of.
	ackSlack = 2 * time.Second
	// commitSlack is for the commit: how long before its end a bridge may have had what it has not
	// committed. Commits are 200 ms apart.
	commitSlack = 4 * time.Second
	// spoolAfter is when the bridge writes to disk what a sink waits for: from then on it is
	// committed without that sink.
	spoolAfter = 5*time.Second + 1250*time.Millisecond
)

// Sink is what is known of one sink without asking the bridge.
type Sink struct {
	Events  []read.Event
	Outages []Outage
}

// Repeats says why a sink holds events more than once. A cause counts only what its evidence
// covers.
type Repeats struct {
	Total int
	// Uncommitted: every sink had it, and the bridge was killed before a commit.
	Uncommitted int
	// OtherAway: another sink was cut off or did not have it yet, and the bridge was killed before
	// it had written it to disk.
	OtherAway int
	// AnswerLost: this sink was cut off after it had stored it, so that nobody could know.
	AnswerLost int
	// Unexplained are the others: each has a line in Problems.
	Unexplained int

	// BeforeCommit is the longest time by which a broker had stored something of Uncommitted before
	// the last commit: what an acknowledgement needs. BeforeEnd is the longest by which it was
	// there before the kill.
	BeforeCommit, BeforeEnd time.Duration
	// Waited is the longest time that something of OtherAway was with this sink before the kill.
	Waited time.Duration

	Problems []string
}

// String is the account as lines of a report.
func (r *Repeats) String() string {
	if r.Total == 0 {
		return "repeats 0"
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	return fmt.Sprintf(`repeats %d
  between acknowledgement and commit      %6d   (stored at most %s before the kill, %s before the last commit)
  another sink did not have it yet        %6d   (sent at most %s before the kill; after 5 s it is on disk)
  the answer was lost, the sink cut off   %6d
  for no known reason                     %6d`,
		r.Total, r.Uncommitted, seconds(r.BeforeEnd), seconds(max(r.BeforeCommit, 0)), r.OtherAway, seconds(r.Waited), r.AnswerLost, r.Unexplained)
}

// Explain looks for the reason of each repeat in what others than the bridge know: when brokers
// stored things, when they were cut off, when the bridge was killed, and when a file of its state
// was last written to.
func Explain(lives []Life, own Sink, others ...Sink) *Repeats {
	x := &explanation{Repeats: &Repeats{}, lives: lives, own: own}
	for _, other := range others {
		x.away = append(x.away, other.Outages...)
		x.elsewhere = append(x.elsewhere, firstTimes(other.Events))
	}
	last := map[string]*read.Event{}
	for i := range own.Events {
		e := &own.Events[i]
		if before := last[e.ID()]; before != nil && e.AboutObject() {
			x.Total++
			x.explain(before, e)
		}
		last[e.ID()] = e
	}
	return x.Repeats
}

func firstTimes(events []read.Event) map[string]time.Time {
	first := map[string]time.Time{}
	for i := range events {
		if e := &events[i]; first[e.ID()].IsZero() {
			first[e.ID()] = e.At
		}
	}
	return first
}

type explanation struct {
	*Repeats
	lives     []Life
	own       Sink
	away      []Outage               // of all others
	elsewhere []map[string]time.Time // when each of the others had an id first
}

func (x *explanation) explain(before, again *read.Event) {
	sent, resent := lifeAt(x.lives, before.At), lifeAt(x.lives, again.At)
	switch {
	case sent < 0:
		x.problem(again, "it was there before the bridge")
	case x.answerLost(before.At, again.At, x.lives[sent]):
		x.AnswerLost++
	case sent == resent:
		x.problem(again, "no kill and no outage was between")
	default:
		x.crashed(before, again, x.lives[sent])
	}
}

// answerLost reports whether the sink was cut off when the answer was to come, and the bridge was
// there to take it.
func (x *explanation) answerLost(stored, again time.Time, life Life) bool {
	until := stored.Add(ackSlack)
	for _, earlier := range []time.Time{again, life.Ended} {
		if earlier.Before(until) {
			until = earlier
		}
	}
	for _, o := range x.own.Outages {
		if o.touches(stored, until) {
			return true
		}
	}
	return false
}

// crashed checks what was sent in a life that ended, and came again in a later one.
func (x *explanation) crashed(before, again *read.Event, life Life) {
	settled, everywhere := x.settled(before, life)
	age := life.Ended.Sub(before.At)
	switch early := life.LastCommit.Sub(settled); {
	case everywhere && early <= ackSlack && life.Ended.Sub(settled) <= commitSlack:
		x.Uncommitted++
		x.BeforeCommit = max(x.BeforeCommit, early)
		x.BeforeEnd = max(x.BeforeEnd, life.Ended.Sub(settled))
	case everywhere:
		x.problem(again, fmt.Sprintf("all sinks had it %v before the kill, and the last commit was %v before it", life.Ended.Sub(settled), life.Ended.Sub(life.LastCommit)))
	case age <= spoolAfter+commitSlack:
		x.OtherAway++
		x.Waited = max(x.Waited, age)
	default:
		x.problem(again, fmt.Sprintf("it was sent %v before the kill, so that it was on disk for those that did not have it", age))
	}
}

// settled is when the last of the sinks had it in a life; everywhere is false when one of the
// others did not have it then, or may have been cut off before it answered.
func (x *explanation) settled(e *read.Event, life Life) (at time.Time, everywhere bool) {
	at = e.At
	for _, o := range x.away {
		if o.touches(life.Began, life.Ended) {
			return at, false
		}
	}
	for _, first := range x.elsewhere {
		t := first[e.ID()]
		if t.IsZero() || t.After(life.Ended) {
			return at, false
		}
		if t.After(at) {
			at = t
		}
	}
	return at, true
}

func (x *explanation) problem(e *read.Event, why string) {
	x.Unexplained++
	x.Problems = append(x.Problems, fmt.Sprintf("%s came again, though %s", Describe(e), why))
}
