package soak

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// Sample is what was measured at one moment: a value for each of the series' columns.
type Sample struct {
	After  time.Duration // since the begin
	Values []float64
}

// Series is what was measured over time.
type Series struct {
	Columns []Column
	Samples []Sample
}

// Column is one thing that is measured.
type Column struct {
	Name string
	// Unit divides what is printed, as 1<<20 for MiB; 0 is 1.
	Unit float64
	// What is flat may grow by this part and by this much, from the first window to the last. Both
	// zero: it need not be flat.
	Ratio, Slack float64
}

func (c Column) bounded() bool { return c.Ratio != 0 || c.Slack != 0 }

func (c Column) in(value float64) float64 {
	if c.Unit == 0 {
		return value
	}
	return value / c.Unit
}

// Add appends a sample.
func (s *Series) Add(after time.Duration, values ...float64) {
	if len(values) != len(s.Columns) {
		panic(fmt.Sprintf("soak: %d values for %d columns", len(values), len(s.Columns)))
	}
	s.Samples = append(s.Samples, Sample{after, values})
}

// Window is a part of the time.
type Window struct{ From, To time.Duration }

// within are the values of a column in a window, in the order of time.
func (s *Series) within(w Window, column int) (values []float64) {
	for _, sample := range s.Samples {
		if sample.After >= w.From && sample.After < w.To {
			values = append(values, sample.Values[column])
		}
	}
	return values
}

// median of no values is 0.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// WriteCSV writes all samples, with a line of names first.
func (s *Series) WriteCSV(to io.Writer) error {
	w := csv.NewWriter(to)
	header := []string{"seconds"}
	for _, c := range s.Columns {
		header = append(header, c.Name)
	}
	if err := w.Write(header); err != nil {
		return err
	}
	for _, sample := range s.Samples {
		line := []string{strconv.FormatFloat(sample.After.Seconds(), 'f', 1, 64)}
		for i, v := range sample.Values {
			line = append(line, strconv.FormatFloat(s.Columns[i].in(v), 'f', -1, 64))
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
