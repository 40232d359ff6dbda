package crash

import (
	"fmt"
	"strings"
	"time"
)

// Report is what a run of a crash test has come to, for somebody who has not seen the test.
type Report struct {
	Name     string
	Seed     uint64
	Kills    map[Phase]int
	Exits    int // how often the bridge had ended by itself
	Restarts int // of the API server
	Cuts     int // of brokers
	Requests string
	Took     time.Duration
	Sinks    []SinkReport
}

// SinkReport is about one sink.
type SinkReport struct {
	Name     string
	Findings *Findings
	Repeats  *Repeats
}

// String is the report as text.
func (r *Report) String() string {
	var b strings.Builder
	total := 0
	for _, n := range r.Kills {
		total += n
	}
	fmt.Fprintf(&b, "crash report of %s, seed %d, %s\n", r.Name, r.Seed, r.Took.Round(time.Second))
	fmt.Fprintf(&b, "the bridge was killed with SIGKILL          %6d times\n", total)
	for _, phase := range Phases {
		fmt.Fprintf(&b, "  %-41s %6d\n", phase, r.Kills[phase])
	}
	fmt.Fprintf(&b, "it ended by itself, without an API server   %6d times\n", r.Exits)
	fmt.Fprintf(&b, "API server killed, its history compacted    %6d times\n", r.Restarts)
	fmt.Fprintf(&b, "brokers cut off                             %6d times\n", r.Cuts)
	fmt.Fprintf(&b, "the bridge asked the API server for %s\n", r.Requests)
	for _, s := range r.Sinks {
		b.WriteString(s.String())
	}
	return b.String()
}

// String is the part of a report about one sink.
func (s *SinkReport) String() string {
	var b strings.Builder
	v := s.Findings
	fmt.Fprintf(&b, "\n%s\n", s.Name)
	for _, line := range []struct {
		what  string
		count int
	}{
		{"changes seen by the independent watch", v.Witnessed},
		{"events about objects, each once", v.Events},
		{"changes lost", v.Lost},
		{"events in a wrong order", v.Reordered},
		{"objects whose last event is not their state", v.Stale},
		{"objects gone without a deleted", v.Ghosts},
		{"the same, but reported to be in a gap", v.Unreported},
		{"gaps reported", v.Gaps},
		{"changes missing in gaps, or before the begin", v.InGaps},
		{"repeats with other bytes", v.Altered},
		{"repeats under another id", v.Renamed},
	} {
		fmt.Fprintf(&b, "  %-44s %6d\n", line.what, line.count)
	}
	fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(s.Repeats.String(), "\n", "\n  "))
	return b.String()
}
