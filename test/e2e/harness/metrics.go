package harness

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Metrics are the values of each metric by its name, one for each set of labels.
type Metrics map[string][]float64

// Sum of a metric's values, 0 when there is none.
func (m Metrics) Sum(name string) (sum float64) {
	for _, v := range m[name] {
		sum += v
	}
	return sum
}

// Max of a metric's values, 0 when there is none.
func (m Metrics) Max(name string) (most float64) {
	for _, v := range m[name] {
		most = max(most, v)
	}
	return most
}

// Metrics asks for all of them.
func (b *Bridge) Metrics(ctx context.Context) (Metrics, error) {
	body, err := b.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	m := Metrics{}
	for line := range strings.Lines(string(body)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		// No metric of the bridge has a time after its value.
		series, text := line[:strings.LastIndexByte(line, ' ')+1], line[strings.LastIndexByte(line, ' ')+1:]
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		name, _, _ := strings.Cut(strings.TrimSpace(series), "{")
		m[name] = append(m[name], value)
	}
	return m, nil
}
