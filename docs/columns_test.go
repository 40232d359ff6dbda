package docs_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// updateColumns lowers the numbers of columns.txt to what is there. It raises none.
var updateColumns = flag.Bool("update-columns", false, "lower the numbers of columns.txt")

const (
	columnsFile = "columns.txt"
	columns     = 100
)

// longLines counts the lines of prose that are longer than 100 columns, by Markdown file and by
// directory of Go files. Tables and code can't be wrapped; neither can a word.
func longLines(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	sources(t, ".md", func(file string, text []byte) {
		if !strings.Contains(file, "testdata/") {
			counts[file] += longProse(string(text))
		}
	})
	sources(t, ".go", func(file string, text []byte) {
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "//") && isLong(line) {
				counts[path.Dir(file)]++
			}
		}
	})
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return counts
}

// generated marks a page that is made of the code: its text is wrapped where it comes from.
var generated = regexp.MustCompile(`(?m)^<!-- (Made of|made of|written by)`)

func longProse(text string) (n int) {
	if generated.MatchString(text) && !strings.Contains(text, "<!-- end of") {
		return 0
	}
	isCode := false
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			isCode = !isCode
		case !isCode && !strings.HasPrefix(trimmed, "|") && isLong(line):
			n++
		}
	}
	return n
}

// address is a word that can't be wrapped, and does not count.
var address = regexp.MustCompile(`\(?https?://\S+`)

// isLong reports whether a line goes beyond the columns and could be wrapped.
func isLong(line string) bool {
	line = strings.ReplaceAll(strings.TrimRight(line, "\n"), "\t", "    ")
	line = address.ReplaceAllString(line, "")
	indent := len(line) - len(strings.TrimLeft(line, " /-"))
	return utf8.RuneCountInString(line) > columns && strings.Contains(line[indent:], " ")
}

// listedLines are the numbers of columns.txt.
func listedLines(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(columnsFile)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		count, file, found := strings.Cut(line, " ")
		n, err := strconv.Atoi(count)
		if err != nil || !found {
			t.Fatalf("columns.txt: %q: want a number and a path", line)
		}
		listed[file] = n
	}
	return listed
}

// Lines of prose and of comments have at most 100 columns, but for those that columns.txt counts.
func TestColumns(t *testing.T) {
	counts, listed := longLines(t), listedLines(t)
	for _, file := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[file]; n > listed[file] {
			t.Errorf("%s: %d lines of prose are longer than %d columns, and columns.txt allows %d", file, n, columns, listed[file])
		}
	}
	if !*updateColumns {
		return
	}
	text := "# How many lines of prose, in a page, or of comments, in the Go files of a directory, are longer\n" +
		"# than 100 columns. The numbers only shrink: go test ./docs -run TestColumns -update-columns\n\n"
	for _, file := range slices.Sorted(maps.Keys(listed)) {
		if n := min(listed[file], counts[file]); n > 0 {
			text += fmt.Sprintf("%d %s\n", n, file)
		}
	}
	if err := os.WriteFile(columnsFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestColumnsAreCounted(t *testing.T) {
	long := strings.Repeat("word ", 30)
	for text, want := range map[string]int{
		long + "\n":                            1,
		"| " + long + "|\n":                    0,
		"```\n" + long + "\n```\n":             0,
		"- " + strings.Repeat("x", 200) + "\n": 0,
		"short\n":                              0,
		"<!-- Made of the comments -->\n" + long + "\n": 0,
	} {
		if got := longProse(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
