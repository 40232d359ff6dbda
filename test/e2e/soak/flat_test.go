package soak_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/test/e2e/soak"
)

var first, last = soak.Window{From: 20 * time.Second, To: 40 * time.Second}, soak.Window{From: 80 * time.Second, To: 100 * time.Second}

// measured is a series of 100 s, a sample each second.
func measured(value func(second float64) float64) *soak.Series {
	s := &soak.Series{Columns: []soak.Column{{Name: "memory, MiB", Unit: 1 << 20, Ratio: 0.2, Slack: 5 << 20}, {Name: "lag"}}}
	for i := range 100 {
		s.Add(time.Duration(i)*time.Second, value(float64(i))*(1<<20), float64(i))
	}
	return s
}

func TestWhatGrowsIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		value func(second float64) float64
		grew  bool
	}{
		"the same all the time":                {func(float64) float64 { return 50 }, false},
		"warming up":                           {func(s float64) float64 { return min(50, 3*s) }, false},
		"high while something was unavailable": {func(s float64) float64 { return map[bool]float64{true: 500, false: 50}[s > 45 && s < 70] }, false},
		"one sample that is high":              {func(s float64) float64 { return map[bool]float64{true: 500, false: 50}[s == 90] }, false},
		"it falls":                             {func(s float64) float64 { return 100 - s }, false},
		"it leaks":                             {func(s float64) float64 { return 50 + s/2 }, true},
		"it keeps what it needed for a while":  {func(s float64) float64 { return map[bool]float64{true: 500, false: 50}[s > 45] }, true},
		"it grows within what is allowed":      {func(s float64) float64 { return 50 + s/10 }, false},
		"it has nothing at first and then all": {func(s float64) float64 { return max(0, s-60) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := measured(c.value)
			if problems := s.Problems(first, last); (len(problems) > 0) != c.grew {
				t.Errorf("grew: %v\n%s", problems, s.Table(first, last))
			}
		})
	}
}

func TestTooFewSamplesShowNothing(t *testing.T) {
	s := measured(func(float64) float64 { return 50 })
	s.Samples = s.Samples[:82]
	if problems := s.Problems(first, last); len(problems) != 1 || !strings.Contains(problems[0], "only 2 samples") {
		t.Error(problems)
	}
}

// The table and the file have every sample.
func TestSoakReport(t *testing.T) {
	s := measured(func(s float64) float64 { return 50 + s })
	var file strings.Builder
	if err := s.WriteCSV(&file); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(file.String(), "\n")
	if lines[0] != `seconds,"memory, MiB",lag` || lines[1] != "0.0,50,0" || lines[100] != "99.0,149,99" {
		t.Errorf("%q", file.String())
	}
	table := s.Table(first, last)
	for _, want := range []string{"20s-40s", "memory, MiB", "80.0", "140.0", "149.0", "101.0", "GREW", "lag"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
}
