package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// unparsable reports what keeps the file from being parsed, at the line where that is. The parser's
// own figure is where the section around it begins, or a line too early, or missing.
func (r *reader) unparsable(data []byte, err error) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	number := brokenLine(lines)
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		message = m[2]
	}
	r.addAt(Origin{Text: fmt.Sprintf("%s:%d", r.file, number), Line: number}, "", "%s%s", message,
		hint(message, lines[number-1]))
}

// hint is what is likely to be meant by the parser's words.
func hint(message string, line []byte) string {
	indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
	switch {
	case bytes.ContainsRune(indent, '\t'):
		return ": there is a tab; YAML is indented with spaces"
	case message == "did not find expected key", message == "did not find expected '-' indicator",
		strings.HasPrefix(message, "mapping values are not allowed"):
		return ": is the line indented as those that it belongs to?"
	default:
		return ""
	}
}

// brokenLine is the number of the line with which, and with all that follow, the file can't be
// parsed, while it can without them.
func brokenLine(lines [][]byte) int {
	good, bad := 0, len(lines)
	for bad-good > 1 {
		if n, ok := parsable(lines, (good+bad)/2, bad); ok {
			good = n
		} else {
			bad = (good + bad) / 2
		}
	}
	return bad
}

// parsable finds a beginning of the file that can be parsed, of at least so many lines: one may end
// within a bracket or quotes, and can't be for that.
func parsable(lines [][]byte, least, below int) (n int, ok bool) {
	const reach = 20
	for n = least; n < min(least+reach, below); n++ {
		err := yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:n], nil))).Decode(new(yaml.Node))
		if err == nil || errors.Is(err, io.EOF) {
			return n, true
		}
	}
	return 0, false
}
