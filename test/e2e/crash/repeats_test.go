package crash_test

import (
	"testing"
	"time"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/read"
)

// moment is so many seconds after the first start.
func moment(seconds float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// stored is an event that a broker has from a moment on.
func stored(t *testing.T, version int, seconds float64) read.Event {
	t.Helper()
	e := about(t, "updated", "u", version)
	e.At = moment(seconds)
	return e
}

func TestARepeatNeedsAReason(t *testing.T) {
	// The first life commits to its end, the second nothing after second 20.
	lives := []crash.Life{
		{Began: moment(0), Ended: moment(10), LastCommit: moment(9.9)},
		{Began: moment(11), Ended: moment(30), LastCommit: moment(20)},
		{Began: moment(31), Ended: moment(40), LastCommit: moment(40)},
	}
	outage := func(from, to float64) []crash.Outage { return []crash.Outage{{From: moment(from), To: moment(to)}} }
	for name, c := range map[string]struct {
		first, again float64 // when this sink had it
		other        float64 // when the other had it
		own, away    []crash.Outage
		want         crash.Repeats
	}{
		"just before the kill":                           {first: 9.8, other: 9.8, again: 12, want: crash.Repeats{Uncommitted: 1}},
		"long before the last commit":                    {first: 5, other: 5, again: 12, want: crash.Repeats{Unexplained: 1}},
		"long before the kill, though nothing was saved": {first: 22, other: 22, again: 32, want: crash.Repeats{Unexplained: 1}},
		"the other had it late":                          {first: 5, other: 9.8, again: 12, want: crash.Repeats{Uncommitted: 1}},
		"the other did not have it":                      {first: 5, other: 12, again: 12, want: crash.Repeats{OtherAway: 1}},
		"the other never had it":                         {first: 5, again: 12, want: crash.Repeats{OtherAway: 1}},
		"the other did not have it, but the disk":        {first: 12, other: 35, again: 32, want: crash.Repeats{Unexplained: 1}},
		"the other was cut off":                          {first: 5, other: 5, again: 12, away: outage(7, 8), want: crash.Repeats{OtherAway: 1}},
		"the other was cut off in another life":          {first: 5, other: 5, again: 12, away: outage(35, 36), want: crash.Repeats{Unexplained: 1}},
		"the other was cut off, long after":              {first: 12, other: 12, again: 32, away: outage(29, 40), want: crash.Repeats{Unexplained: 1}},
		"the answer was lost":                            {first: 5, other: 5, again: 7, own: outage(5.1, 6), want: crash.Repeats{AnswerLost: 1}},
		"the answer was lost, and then came a kill":      {first: 5, other: 5, again: 12, own: outage(5.1, 11.5), want: crash.Repeats{AnswerLost: 1}},
		"it was cut off after the kill only":             {first: 9.8, other: 9.8, again: 12, own: outage(10.1, 11.5), want: crash.Repeats{Uncommitted: 1}},
		"nothing happened":                               {first: 5, other: 5, again: 7, want: crash.Repeats{Unexplained: 1}},
		"the outage was before":                          {first: 5, other: 5, again: 7, own: outage(3, 4), want: crash.Repeats{Unexplained: 1}},
		"the outage was long after":                      {first: 1, other: 1, again: 12, own: outage(8, 9), want: crash.Repeats{Unexplained: 1}},
		"it was there before the bridge":                 {first: -5, other: 1, again: 7, want: crash.Repeats{Unexplained: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			own := crash.Sink{Events: []read.Event{stored(t, 1, c.first), stored(t, 2, c.first), stored(t, 1, c.again)}, Outages: c.own}
			other := crash.Sink{Outages: c.away}
			if c.other > 0 {
				other.Events = []read.Event{stored(t, 1, c.other), stored(t, 1, c.other+1)}
			}
			got := crash.Explain(lives, own, other)
			if got.Total != 1 || got.Uncommitted != c.want.Uncommitted || got.OtherAway != c.want.OtherAway || got.AnswerLost != c.want.AnswerLost ||
				got.Unexplained != c.want.Unexplained || len(got.Problems) != c.want.Unexplained {
				t.Errorf("got  %s\n%v\nwant %s", got, got.Problems, &c.want)
			}
		})
	}
}
