package config_test

import (
	"fmt"
	"strings"
	"testing"
)

// A mistake in the YAML is reported at its line.
func TestYAMLErrorLine(t *testing.T) {
	informers := "cluster: c\ninformers:\n  - name: a\n    resources: [pods]\n"
	for name, c := range map[string]struct {
		text string
		line int
		want string
	}{
		"a key of a list's item is too far left":    {informers + "   sinks: [{name: s}]\nsinks: []\n", 5, "did not find expected '-' indicator: is the line indented"},
		"a key is as far left as its list":          {"cluster: c\ninformers:\n  - name: a\n  resources: [pods]\n", 4, "is the line indented"},
		"a key is too far right":                    {"cluster: c\nlog:\n  level: info\n   format: text\nshutdownTimeout: 5s\n", 4, "is the line indented"},
		"a key is between two levels":               {"cluster: c\nlog:\n    level: info\n  format: text\nshutdownTimeout: 5s\n", 4, "did not find expected key: is the line indented"},
		"the second line of all":                    {"cluster: c\n log: {}\n", 2, "is the line indented"},
		"a tab":                                     {informers + "\tsinks: []\nsinks: []\n", 5, "there is a tab"},
		"a bracket that is not closed":              {"cluster: c\n\n# why\ninformers:\n  - name: a\n    resources: [pods\nsinks:\n  - name: s\n    stdout: {}\n", 6, "',' or ']'"},
		"a quote that is not closed":                {"cluster: c\nlog:\n  level: \"info\n  format: text\n", 3, ""},
		"the first line":                            {"cluster: @c\nshutdownTimeout: 5s\n", 1, "cannot start any token"},
		"an anchor that is not there":               {"cluster: c\nlog:\n  level: *level\n", 3, "unknown anchor"},
		"behind a list in brackets over many lines": {"informers:\n  - resources: [\n" + strings.Repeat("      pods,\n", 15) + "    ]\n   name: a\n", 19, "is the line indented"},
		"the last line, which has no end":           {"cluster: c\nlog: {", 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.text)
			if place := fmt.Sprintf("bridge.yaml:%d: ", c.line); err == nil || !strings.Contains(err.Error(), place) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s and %q", err, place, c.want)
			}
		})
	}
}
