package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestWholeWorkflow fails for a target of make check-all that no job of the workflow whole.yml
// runs, and for one that only the workflow has.
func TestWholeWorkflow(t *testing.T) {
	targets := regexp.MustCompile(`(?m)^check-all: (.*?) ##`).FindStringSubmatch(readFile(t, "../Makefile"))
	if targets == nil {
		t.Fatal("the Makefile has no target check-all")
	}
	wanted := strings.Fields(targets[1])
	var run []string
	_, matrix, _ := strings.Cut(readFile(t, "../.github/workflows/whole.yml"), "targets:\n")
	matrix, _, _ = strings.Cut(matrix, "    steps:")
	for line := range strings.Lines(matrix) {
		run = append(run, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "- "))...)
	}
	for _, target := range wanted {
		if !slices.Contains(run, target) {
			t.Errorf("whole.yml does not run %s", target)
		}
	}
	for _, target := range run {
		if !slices.Contains(wanted, target) {
			t.Errorf("whole.yml runs %s, which check-all does not", target)
		}
	}
}
