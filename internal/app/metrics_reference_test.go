package app

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	metricsPage = "../../docs/metrics.md"
	metricsHead = `# Metrics

<!-- Made of the code and of internal/app/testdata/remedies.txt by
     "go test ./internal/app -run TestMetricsReference -update". Do not edit. -->

Every metric of the admin server's ` + "`/metrics`" + `: what it means, when to act, and how. Names in brackets
are alerts, which have [runbooks](runbooks.md). A histogram has three series: ` + "`_bucket`, `_sum`" + `
and ` + "`_count`" + `.

| metric | type | labels | meaning | when to act |
| --- | --- | --- | --- | --- |
`
)

// TestMetricsReference: docs/metrics.md has every metric that is registered, with its type, its
// labels, its meaning and when to act on it.
func TestMetricsReference(t *testing.T) {
	var out strings.Builder
	out.WriteString(metricsHead)
	found, when := everyMetric(t), remedies(t)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		m := found[name]
		if m.kind == "" {
			t.Errorf("%s: its type is not known: it collects nothing, and is no _total", name)
		}
		if len(m.help) < 20 || strings.ContainsAny(m.help, "|\n") {
			t.Errorf("%s: its meaning is %q", name, m.help)
		}
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", name, m.kind, labels, m.help, when[name])
	}
	if *update {
		if err := os.WriteFile(metricsPage, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != out.String() {
		t.Error("docs/metrics.md is not what the code has: run go test ./internal/app -run TestMetricsReference -update")
	}
}
