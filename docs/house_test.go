package docs_test

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floor is a line of the picture in design.md: the number of a floor, and its rooms.
var floor = regexp.MustCompile(`(?m)^ ?(\d+) (\w[\w/]*(?:, \w+)*)  `)

// beside are rooms that only tests use.
var beside = []string{"internal/testkit", "internal/sinks/sinktest"}

// TestHouse fails for a room that uses one of its own floor or of a higher one, as the picture in
// design.md has them, and for a room that has no floor. With -v it prints how large the house is
// (make house).
func TestHouse(t *testing.T) {
	floors := map[string]int{}
	for _, line := range floor.FindAllStringSubmatch(readFile(t, "design.md"), -1) {
		n, _ := strconv.Atoi(line[1])
		for room := range strings.SplitSeq(line[2], ", ") {
			floors[room] = n
		}
	}
	if len(floors) < 17 {
		t.Fatalf("the picture has %d rooms: %v", len(floors), floors)
	}
	h := house{packages: map[string]bool{}, rooms: map[string]bool{}, arrows: map[[2]string]bool{}}
	for _, file := range tracked(t, "cmd", "config", "internal") {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") ||
			slices.ContainsFunc(beside, func(room string) bool { return strings.HasPrefix(file, room+"/") }) {
			continue
		}
		text := readFile(t, filepath.Join("..", file))
		h.count(file, text)
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		from := roomOf(file)
		if floors[from] == 0 {
			t.Errorf("%s: the picture in design.md has no room %s", file, from)
		}
		for _, spec := range f.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			imported, ours := strings.CutPrefix(imported, module)
			to := roomOf(imported + "/")
			if !ours || to == from {
				continue
			}
			h.arrows[[2]string{from, to}] = true
			if at := floors[to]; at == 0 || at >= floors[from] {
				t.Errorf("%s: %s, of floor %d, uses %s, of floor %d", file, from, floors[from], to, at)
			}
		}
	}
	h.print(t)
}

// roomOf returns the room of a file: cmd/bridge, config, or the name of a directory right below
// internal.
func roomOf(file string) string {
	parts := strings.Split(file, "/")
	switch parts[0] {
	case "internal":
		return parts[1]
	case "cmd":
		return path.Join(parts[:2]...)
	}
	return parts[0]
}

// house is what is counted.
type house struct {
	packages, rooms     map[string]bool
	arrows              map[[2]string]bool
	files, small, lines int
	longest             string
	longestLines        int
}

func (h *house) count(file, text string) {
	lines := strings.Count(text, "\n")
	h.packages[path.Dir(file)], h.rooms[roomOf(file)] = true, true
	h.files++
	h.lines += lines
	if lines < 60 {
		h.small++
	}
	if lines > h.longestLines {
		h.longest, h.longestLines = file, lines
	}
}

// generatedPages are the pages that are written from the code.
var generatedPages = []string{"docs/commands.md", "docs/metrics.md", "docs/configuration"}

func (h *house) print(t *testing.T) {
	t.Helper()
	words, modules, directories := 0, 0, map[string]bool{}
	for _, file := range tracked(t) {
		switch {
		case path.Base(file) == "go.mod":
			modules++
		case strings.HasPrefix(file, "internal/"):
			directories[roomOf(file)] = true
		}
		isGenerated := slices.ContainsFunc(generatedPages, func(p string) bool { return strings.HasPrefix(file, p) })
		if strings.HasSuffix(file, ".md") && !strings.Contains(file, "testdata/") && !isGenerated {
			words += len(strings.Fields(readFile(t, filepath.Join("..", file))))
		}
	}
	t.Logf("\ndirectories under internal  %d\npackages                    %d\nproduct files               %d\n"+
		"  of these under 60 lines   %d\nproduct lines               %d\nlongest file                %s, %d lines\n"+
		"rooms                       %d\narrows between rooms        %d\nwords of documentation      %d\nGo modules                  %d",
		len(directories), len(h.packages), h.files, h.small, h.lines, h.longest, h.longestLines,
		len(h.rooms), len(h.arrows), words, modules)
}

// tracked are the files that git tracks below some directories, or all.
func tracked(t *testing.T, dirs ...string) []string {
	t.Helper()
	list := exec.Command("git", append([]string{"ls-files", "--"}, dirs...)...)
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Skip("git can't list the files: ", err)
	}
	return strings.Fields(string(out))
}
