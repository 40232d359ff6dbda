package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Origin is where the value comes from: "bridge.yaml:12", "BRIDGE_STATE_DIR", "--state-dir"; ""
	// for a default, or a Config that was made in Go.
	Origin string
	// Path is the key, as in YAML: "informers[0].sinks[1].name"; "" for the file as a whole.
	Path string
	// Message says what is wrong and what to do. It holds no secret.
	Message string

	line int
}

// Error is "bridge.yaml:12: informers[0].sinks[1].name: no sink \"audti\": did you mean
// \"audit\"?".
func (p *Problem) Error() string {
	parts := make([]string, 0, 3)
	for _, part := range []string{p.Origin, p.Path, p.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Problems lists what is wrong, out of an error of a Report, however wrapped: nil when the error is
// of another kind.
func Problems(err error) []*Problem {
	switch e := err.(type) { //nolint:errorlint // it goes through the tree of wrapped errors itself
	case *Problem:
		return []*Problem{e}
	case interface{ Unwrap() error }:
		return Problems(e.Unwrap())
	case interface{ Unwrap() []error }:
		var list []*Problem
		for _, one := range e.Unwrap() {
			list = append(list, Problems(one)...)
		}
		return list
	}
	return nil
}

// Origin is where a value comes from.
type Origin struct {
	// Text is "bridge.yaml:12", "BRIDGE_STATE_DIR" or "--state-dir".
	Text string
	// Line is that of the file; 0 when the value does not come from the file.
	Line int
	// Reference is the text of the file where it names variables, as in "${HOST}:9092", and Value
	// what became of it. A variable may hold a secret, in the wrong key too: only the reference is
	// printed.
	Reference, Value string
}

// Hide puts the reference into the place of the value, but not within a word: the value send is not
// meant by "sending".
func (o *Origin) Hide(text string) string {
	if o.Value == "" {
		return text
	}
	parts := strings.Split(text, strconv.Quote(o.Value))
	for i := range parts {
		parts[i] = o.hideWords(parts[i])
	}
	return strings.Join(parts, strconv.Quote(o.Reference))
}

func (o *Origin) hideWords(text string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, o.Value)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		if endsInWord(before) || beginsInWord(after) {
			out.WriteString(o.Value)
		} else {
			out.WriteString(o.Reference)
		}
		text = after
	}
}

func endsInWord(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return unicode.IsLetter(r)
}

func beginsInWord(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return unicode.IsLetter(r)
}

// Origins maps the paths of the keys that were given to where they come from. A path that is not in
// it has its default.
type Origins map[string]Origin

// Of finds the origin of a path: its own, else that of the nearest section around it that was
// given.
func (o Origins) Of(path string) Origin {
	for path != "" {
		if found, ok := o[path]; ok {
			return found
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return o[""]
}

// Given reports whether a key was given, or one below it.
func (o Origins) Given(path string) bool {
	if _, ok := o[path]; ok {
		return true
	}
	for p := range o {
		if strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[") {
			return true
		}
	}
	return false
}

// Problem is one with the key at path, which knows where the key is.
func (o Origins) Problem(path, format string, args ...any) *Problem {
	from := o.Of(path)
	return &Problem{
		Origin: from.Text, Path: path, Message: from.Hide(fmt.Sprintf(format, args...)),
		line: from.Line,
	}
}

// InOrder sorts errors by where in the file they are; those that are no problems of the file come
// first.
func InOrder(errs []error) []error {
	line := func(err error) int {
		if p, ok := errors.AsType[*Problem](err); ok {
			return p.line
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(errs), func(a, b error) int {
		return cmp.Or(cmp.Compare(line(a), line(b)), strings.Compare(a.Error(), b.Error()))
	})
}

// Report gathers what is wrong with a configuration.
type Report struct {
	// Origins are those of the values; they may be nil.
	Origins Origins
	list    []*Problem
}

// List returns what was added so far.
func (ps *Report) List() []*Problem { return ps.list }

// Add notes a problem with the key at path.
func (ps *Report) Add(path, format string, args ...any) {
	ps.list = append(ps.list, ps.Origins.Problem(path, format, args...))
}

func (ps *Report) addAt(o Origin, path, format string, args ...any) {
	ps.list = append(ps.list, &Problem{
		Origin: o.Text, Path: path,
		Message: o.Hide(fmt.Sprintf(format, args...)), line: o.Line,
	})
}

// Choice is one of several keys of which only some may be given.
type Choice struct {
	name  string
	given bool
}

// Key is a choice.
func Key(name string, given bool) Choice { return Choice{name, given} }

// GivenKeys returns the names of the keys that are given.
func GivenKeys(several ...Choice) []string {
	var names []string
	for _, k := range several {
		if k.given {
			names = append(names, k.name)
		}
	}
	return names
}

// AtMostOne reports the second of several keys that exclude each other.
func (ps *Report) AtMostOne(path string, several ...Choice) {
	if keys := GivenKeys(several...); len(keys) > 1 {
		ps.Add(Join(path, keys[1]), "cannot be combined with %s: keep one of %s", keys[0],
			strings.Join(keys, ", "))
	}
}

// HostPort reports an address that is not host:port.
func (ps *Report) HostPort(path, address string) {
	host, port, err := net.SplitHostPort(address)
	n, convErr := strconv.Atoi(port)
	if err != nil || convErr != nil || n < 0 || n > 65535 || strings.ContainsAny(host, "@/?#") {
		ps.Add(path, "want host:port, got %q", URL(address).String())
	}
}

// HasAt reports whether a problem with the key itself is already known.
func (ps *Report) HasAt(path string) bool {
	return slices.ContainsFunc(ps.list, func(p *Problem) bool { return p.Path == path })
}

// Has reports whether a problem with the key, or with one directly in it, is already known: what
// follows from it need not be reported.
func (ps *Report) Has(path string) bool {
	return slices.ContainsFunc(ps.list, func(p *Problem) bool {
		return p.Path == path || parent(p.Path) == path && path != ""
	})
}

// Within reports whether a problem with the key, or with one anywhere below it, is known.
func (ps *Report) Within(path string) bool {
	return slices.ContainsFunc(ps.list, func(p *Problem) bool {
		rest, ok := strings.CutPrefix(p.Path, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// Keep drops the problems with keys of other sections than these, and with variables of theirs.
func (ps *Report) Keep(prefix Prefix, sections []string) {
	ps.list = slices.DeleteFunc(ps.list, func(p *Problem) bool {
		variable := p.Path == "" && strings.HasPrefix(p.Origin, string(prefix))
		if p.Path == "" && !variable {
			return false // the file as a whole
		}
		return !slices.ContainsFunc(sections, func(section string) bool {
			if variable {
				return strings.HasPrefix(p.Origin, prefix.Name(section)+"_")
			}
			return p.Path == section || strings.HasPrefix(p.Path, section+".")
		})
	})
}

// Err joins the problems, in the order of the file's lines; those from elsewhere come first.
func (ps *Report) Err() error {
	slices.SortStableFunc(ps.list, func(a, b *Problem) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, len(ps.list))
	for i, p := range ps.list {
		errs[i] = p
	}
	return errors.Join(errs...)
}

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
