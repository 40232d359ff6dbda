package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRemedies: for each runbook, testing.md names tests that carry out its remedy, and they exist.
func TestRemedies(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, table, found := strings.Cut(read("testing.md"), "## The remedies of the runbooks\n")
	if !found {
		t.Fatal("testing.md has no section about the remedies")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	tests := map[string]bool{}
	for _, one := range slices.Concat(readTests(t, "../internal"), readTests(t, "../test"), readTests(t, "../deploy")) {
		tests[one.name] = true
	}
	rows := map[string]bool{}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	for _, row := range regexp.MustCompile("(?m)^\\| `(Bridge[A-Za-z]+)` \\| (.*) \\|$").FindAllStringSubmatch(table, -1) {
		rows[row[1]] = true
		names := named.FindAllStringSubmatch(row[2], -1)
		if len(names) == 0 {
			t.Errorf("%s: no test", row[1])
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("%s: there is no test %s", row[1], name[1])
			}
		}
	}
	alerts := regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(read("runbooks.md"), -1)
	for _, alert := range alerts {
		if !rows[alert[1]] {
			t.Errorf("testing.md names no test of the remedy of %s", alert[1])
		}
		delete(rows, alert[1])
	}
	for row := range rows {
		t.Errorf("%s has no runbook", row)
	}
	if len(alerts) < 20 {
		t.Errorf("only %d runbooks were found", len(alerts))
	}
}
