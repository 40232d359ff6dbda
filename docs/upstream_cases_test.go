// Package docs_test keeps the documents true that can be compared with the code.
package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// upstreamFolders are those of client-go whose tests are listed.
var upstreamFolders = []string{"tools/cache", "tools/pager", "tools/watch", "util/workqueue"}

// upstreamCases lists the cases of client-go's tests, each with a test of ours or a reason.
const upstreamCases = "testdata/upstream_cases.txt"

// TestUpstreamCases compares the list with client-go's tests and with ours. It fails after an
// upgrade that brought new cases: give each a test of ours, or the reason why it can't come up
// here.
func TestUpstreamCases(t *testing.T) {
	dir, version := clientGo(t)
	doc, err := os.ReadFile(upstreamCases)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "client-go "+version) {
		t.Errorf("go.mod has client-go %s, and %s was compared with another", version, upstreamCases)
	}
	var upstream []goTest
	for _, folder := range upstreamFolders {
		for _, test := range readTests(t, filepath.Join(dir, filepath.FromSlash(folder))) {
			test.file = path.Join(folder, test.file)
			upstream = append(upstream, test)
		}
	}
	ours := slices.Concat(readTests(t, "../internal"), readTests(t, "../test"))
	if len(upstream) < 200 || len(ours) < 200 {
		t.Fatalf("%d tests of client-go and %d of ours were found", len(upstream), len(ours))
	}
	for _, problem := range compareCases(string(doc), upstream, ours) {
		t.Error(problem)
	}
}

// clientGo says where client-go's source is, and of which version.
func clientGo(t *testing.T) (dir, version string) {
	t.Helper()
	if _, err := os.Stat("../go.mod"); err != nil { // so that another go.mod is another test, and no cached answer is taken
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}|{{.Version}}", "k8s.io/client-go").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dir, version, _ = strings.Cut(strings.TrimSpace(string(out)), "|")
	if dir == "" {
		t.Fatal("client-go's source is not there: go mod download")
	}
	return dir, version
}

// listedCase is one line of the list.
type listedCase struct {
	file          string // of the heading above
	test, subtest string
	here          string
}

func (c listedCase) String() string {
	name := c.test
	if c.subtest != "" {
		name += "/" + c.subtest
	}
	return fmt.Sprintf("%s: %s", c.file, name)
}

// readCases reads the lines of a list. An answer "as above" is that of the line before.
func readCases(doc string) (cases []listedCase) {
	file := ""
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			file = heading
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		left, here, _ := strings.Cut(line, " |")
		c := listedCase{file: file, here: strings.TrimSpace(here)}
		if n := len(cases); c.here == "as above" && n > 0 && cases[n-1].file == file {
			c.here = cases[n-1].here
		}
		c.test, c.subtest, _ = strings.Cut(left, "/")
		cases = append(cases, c)
	}
	return cases
}

// compareCases reports what is wrong with a list.
func compareCases(doc string, upstream, ours []goTest) (problems []string) {
	byTest := map[string][]listedCase{}
	for _, c := range readCases(doc) {
		byTest[c.file+" "+c.test] = append(byTest[c.file+" "+c.test], c)
		problems = append(problems, answerProblems(c, ours)...)
	}
	for _, test := range upstream {
		id := test.file + " " + test.name
		problems = append(problems, missingProblems(test, byTest[id])...)
		delete(byTest, id)
	}
	for _, cases := range byTest {
		problems = append(problems, fmt.Sprintf("%s is no test of client-go", cases[0]))
	}
	slices.Sort(problems)
	return problems
}

// missingProblems checks that a test of client-go is listed: as a whole, or each of its subtests.
func missingProblems(test goTest, cases []listedCase) (problems []string) {
	if len(cases) == 0 {
		return []string{fmt.Sprintf("%s: %s is not listed", test.file, test.name)}
	}
	if len(cases) == 1 && cases[0].subtest == "" {
		return nil
	}
	for _, name := range test.subtests {
		if !slices.ContainsFunc(cases, func(c listedCase) bool { return c.subtest == name }) {
			problems = append(problems, fmt.Sprintf("%s: %s/%s is not listed", test.file, test.name, name))
		}
	}
	for i, c := range cases {
		twice := slices.ContainsFunc(cases[:i], func(before listedCase) bool { return before.subtest == c.subtest })
		if twice || !slices.Contains(test.subtests, c.subtest) {
			problems = append(problems, fmt.Sprintf("%s is listed twice, or is no subtest", c))
		}
	}
	return problems
}

// answerProblems checks that a line names tests that exist, or gives a reason.
func answerProblems(c listedCase, ours []goTest) (problems []string) {
	named := 0
	for i, part := range strings.Split(c.here, "`") {
		pkg, name, isTest := strings.Cut(part, ".Test")
		if i%2 == 0 || !isTest {
			continue
		}
		named++
		if !exists(pkg, "Test"+name, ours) {
			problems = append(problems, fmt.Sprintf("%s: there is no %s", c, part))
		}
	}
	reason, isReason := strings.CutPrefix(c.here, "not here: ")
	if named == 0 && (!isReason || len(reason) < len("as above")) {
		problems = append(problems, fmt.Sprintf("%s has neither a test nor a reason", c))
	}
	return problems
}

// exists looks for "package.Test/subtest" among ours. A subtest's name is a string somewhere in the
// test.
func exists(pkg, name string, ours []goTest) bool {
	name, subtest, isSub := strings.Cut(name, "/")
	return slices.ContainsFunc(ours, func(g goTest) bool {
		return path.Base(path.Dir(g.file)) == pkg && g.name == name && (!isSub || g.literals[subtest])
	})
}
