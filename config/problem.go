package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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

// Problems lists what is wrong, out of an error of Load or Validate, however wrapped: nil when the
// error is of another kind.
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

// origin is where a value comes from.
type origin struct {
	text string
	line int // in the file; 0 when it does not come from the file
	// reference is the text of the file where it names variables, as in "${HOST}:9092", and value
	// what became of it. A variable may hold a secret, in the wrong key too: only the reference is
	// printed.
	reference, value string
}

// hide puts the reference into the place of the value, but not within a word: the value send is not
// meant by "sending".
func (o *origin) hide(text string) string {
	if o.value == "" {
		return text
	}
	parts := strings.Split(text, strconv.Quote(o.value))
	for i := range parts {
		parts[i] = o.hideWords(parts[i])
	}
	return strings.Join(parts, strconv.Quote(o.reference))
}

func (o *origin) hideWords(text string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, o.value)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		if endsInWord(before) || beginsInWord(after) {
			out.WriteString(o.value)
		} else {
			out.WriteString(o.reference)
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

// origins maps the paths of the keys that were given to where they come from. A path that is not in
// it has its default.
type origins map[string]origin

// of finds the origin of a path: its own, else that of the nearest section around it that was
// given.
func (o origins) of(path string) origin {
	for path != "" {
		if found, ok := o[path]; ok {
			return found
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return o[""]
}

// given reports whether a key was given, or one below it.
func (o origins) given(path string) bool {
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

// problems gathers what is wrong.
type problems struct {
	origins origins
	list    []*Problem
}

// add notes a problem with the key at path.
func (ps *problems) add(path, format string, args ...any) {
	ps.addAt(ps.origins.of(path), path, format, args...)
}

func (ps *problems) addAt(o origin, path, format string, args ...any) {
	ps.list = append(ps.list, &Problem{
		Origin: o.text, Path: path,
		Message: o.hide(fmt.Sprintf(format, args...)), line: o.line,
	})
}

// hasAt reports whether a problem with the key itself is already known.
func (ps *problems) hasAt(path string) bool {
	return slices.ContainsFunc(ps.list, func(p *Problem) bool { return p.Path == path })
}

// has reports whether a problem with the key, or with one directly in it, is already known: what
// follows from it need not be told.
func (ps *problems) has(path string) bool {
	return slices.ContainsFunc(ps.list, func(p *Problem) bool {
		return p.Path == path || parent(p.Path) == path && path != ""
	})
}

// within reports whether a problem with the key, or with one anywhere below it, is known.
func (ps *problems) within(path string) bool {
	return slices.ContainsFunc(ps.list, func(p *Problem) bool {
		rest, ok := strings.CutPrefix(p.Path, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// keep drops the problems with keys of other sections than these.
func (ps *problems) keep(sections []string) {
	ps.list = slices.DeleteFunc(ps.list, func(p *Problem) bool {
		variable := p.Path == "" && strings.HasPrefix(p.Origin, EnvPrefix)
		if p.Path == "" && !variable {
			return false // the file as a whole
		}
		return !slices.ContainsFunc(sections, func(section string) bool {
			if variable {
				return strings.HasPrefix(p.Origin, EnvName(section)+"_")
			}
			return p.Path == section || strings.HasPrefix(p.Path, section+".")
		})
	})
}

// err joins the problems, in the order of the file's lines; those from elsewhere come first.
func (ps *problems) err() error {
	slices.SortStableFunc(ps.list, func(a, b *Problem) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, len(ps.list))
	for i, p := range ps.list {
		errs[i] = p
	}
	return errors.Join(errs...)
}
