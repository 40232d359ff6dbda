package soak

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Finding is what became of one column.
type Finding struct {
	Column
	First, Last float64 // medians of the windows
	Most        float64 // of all samples
	Allowed     float64 // what Last may be at most; 0 for whatever it likes
}

// Grew reports whether it is not flat.
func (f Finding) Grew() bool { return f.bounded() && f.Last > f.Allowed }

// Compare compares the medians of two windows.
func (s *Series) Compare(first, last Window) (findings []Finding) {
	for i, c := range s.Columns {
		f := Finding{Column: c, First: median(s.within(first, i)), Last: median(s.within(last, i))}
		for _, sample := range s.Samples {
			f.Most = max(f.Most, sample.Values[i])
		}
		if c.bounded() {
			f.Allowed = f.First*(1+c.Ratio) + c.Slack
		}
		findings = append(findings, f)
	}
	return findings
}

// Problems are the columns that are not flat, a line each. Too few samples are a problem too: they
// would show nothing.
func (s *Series) Problems(first, last Window) (problems []string) {
	const fewest = 5
	for _, w := range []Window{first, last} {
		if n := len(s.in(w)); n < fewest {
			problems = append(problems, fmt.Sprintf("only %d samples between %v and %v: they show nothing", n, w.From, w.To))
		}
	}
	for _, f := range s.Compare(first, last) {
		if f.Grew() {
			problems = append(problems, fmt.Sprintf("%s grew: its median was %.1f at first and %.1f in the end, of %.1f that are allowed",
				f.Name, f.in(f.First), f.in(f.Last), f.in(f.Allowed)))
		}
	}
	return problems
}

func (s *Series) in(w Window) []Sample {
	return slices.DeleteFunc(slices.Clone(s.Samples), func(x Sample) bool { return x.After < w.From || x.After >= w.To })
}

// Table is the comparison for people.
func (s *Series) Table(first, last Window) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	span := func(w Window) string { return fmt.Sprintf("%v-%v", w.From.Round(time.Second), w.To.Round(time.Second)) }
	fmt.Fprintf(w, "median of\t%s\t%s\tat most\tallowed\t\t\n", span(first), span(last))
	for _, f := range s.Compare(first, last) {
		allowed, outcome := "-", ""
		if f.bounded() {
			allowed, outcome = fmt.Sprintf("%.1f", f.in(f.Allowed)), "flat"
		}
		if f.Grew() {
			outcome = "GREW"
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%s\t%s\t\n", f.Name, f.in(f.First), f.in(f.Last), f.in(f.Most), allowed, outcome)
	}
	_ = w.Flush() // to memory
	return b.String()
}
