package docs_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const columns = 100

// Lines of prose and of comments have at most 100 columns. Tables and code can't be wrapped, and a
// word can't either.
func TestColumns(t *testing.T) {
	sources(t, ".md", func(file string, text []byte) {
		if n := longProse(string(text)); n > 0 && !strings.Contains(file, "testdata/") {
			t.Errorf("%s: %d lines of prose are longer than %d columns", file, n, columns)
		}
	})
	sources(t, ".go", func(file string, text []byte) {
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			if strings.HasPrefix(strings.TrimSpace(line), "//") && isLong(line) {
				t.Errorf("%s:%d: a comment is longer than %d columns", file, n, columns)
			}
		}
	})
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
