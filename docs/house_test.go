package docs_test

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// floors are the rooms of the product, the lowest first. A room uses only rooms of lower floors.
var floors = [][]string{
	{"internal/resource", "internal/ratelimit", "internal/settings", "internal/metric"},
	{"internal/reflector", "internal/deltafifo", "internal/store", "internal/event"},
	{"internal/history", "internal/kube"},
	{"internal/sinks"},
	{"internal/publisher", "config"},
	{"internal/informer"},
	{"internal/bridge"},
	{"internal/app"},
	{"internal/cli"},
	{"cmd/bridge"},
}

// beside are rooms that only tests use.
var beside = []string{"internal/testkit", "internal/sinks/sinktest"}

// TestHouse fails for a room that uses one of its own floor or of a higher one, and for a room that
// has no floor. With -v it prints how large the house is (make house).
func TestHouse(t *testing.T) {
	floor := map[string]int{}
	for n, rooms := range floors {
		for _, room := range rooms {
			floor[room] = n
		}
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
		if _, known := floor[from]; !known {
			t.Errorf("%s: the room %s has no floor", file, from)
		}
		for _, spec := range f.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			imported, ours := strings.CutPrefix(imported, module)
			to := roomOf(imported + "/")
			if !ours || to == from {
				continue
			}
			h.arrows[[2]string{from, to}] = true
			if at, known := floor[to]; !known || at >= floor[from] {
				t.Errorf("%s: %s, of floor %d, uses %s, of floor %d", file, from, floor[from], to, at)
			}
		}
	}
	h.print(t)
}

// roomOf returns the room of a file: cmd/bridge, config, or a directory right below internal.
func roomOf(file string) string {
	parts := strings.Split(file, "/")
	if parts[0] == "config" {
		return parts[0]
	}
	return path.Join(parts[0], parts[1])
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
