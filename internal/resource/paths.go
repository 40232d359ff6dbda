package resource

import (
	"fmt"
	"slices"
	"strings"
)

// Path leads to places in an object: names of members, and * for every member or item.
type Path struct{ steps []step }

// step is one name, or all of them.
type step struct {
	name string
	any  bool
}

// ParsePath reads a path: names behind dots, * for every member of an object or item of a list, and
// ["name"] for a name that has dots or other signs in it. Examples:
// status.conditions.*.lastHeartbeatTime, metadata.annotations["example.com/x"]. A dot in front, as
// kubectl has it, is left out.
func ParsePath(text string) (Path, error) {
	p := Path{}
	for rest := strings.TrimPrefix(text, "."); ; {
		s, after, err := nextStep(rest, len(p.steps) == 0)
		if err != nil {
			return Path{},
				fmt.Errorf(`path %q: %w; want names behind dots, * for all, and ["name"] for a name with dots in it`, text, err)
		}
		p.steps = append(p.steps, s)
		if after == "" {
			return p, nil
		}
		rest = after
	}
}

// nextStep reads a step off a path; the first has no dot before it.
func nextStep(text string, first bool) (s step, rest string, err error) {
	if name, found := strings.CutPrefix(text, "["); found {
		return bracketed(name)
	}
	if !first {
		var found bool
		if text, found = strings.CutPrefix(text, "."); !found {
			return s, "", fmt.Errorf("no dot before %q", text)
		}
	}
	end := strings.IndexAny(text, ".[]\"'")
	if end < 0 {
		end = len(text)
	}
	if end == 0 {
		return s, "", fmt.Errorf("a name is missing")
	}
	return step{name: text[:end], any: text[:end] == "*"}, text[end:], nil
}

// bracketed reads what stands behind a [: a name in quotes, or *.
func bracketed(text string) (s step, rest string, err error) {
	if rest, found := strings.CutPrefix(text, "*]"); found {
		return step{name: "*", any: true}, rest, nil
	}
	for _, quote := range []string{`"`, `'`} {
		if inner, found := strings.CutPrefix(text, quote); found {
			if name, rest, found := strings.Cut(inner, quote+"]"); found && name != "" {
				return step{name: name}, rest, nil
			}
		}
	}
	return s, "", fmt.Errorf(`[ without "name"] or *]`)
}

// String returns the path as ParsePath reads it.
func (p Path) String() string {
	var out strings.Builder
	for i, s := range p.steps {
		switch {
		case !s.any && (s.name == "*" || strings.ContainsAny(s.name, ".[]\"'")):
			quote := `"`
			if strings.Contains(s.name, `"]`) { // it was read from single quotes
				quote = "'"
			}
			out.WriteString("[" + quote + s.name + quote + "]")
		case i == 0:
			out.WriteString(s.name)
		default:
			out.WriteString("." + s.name)
		}
	}
	return out.String()
}

// Exact reports whether the path leads to one place at most.
func (p Path) Exact() bool {
	return !slices.ContainsFunc(p.steps, func(s step) bool { return s.any })
}

// Reaches reports whether the path may lead to the place of names, or to something around it.
func (p Path) Reaches(names ...string) bool {
	if len(p.steps) > len(names) {
		return false
	}
	for i, s := range p.steps {
		if !s.any && s.name != names[i] {
			return false
		}
	}
	return true
}

// Overlaps reports whether both paths may lead to one place, or one of them to something around the
// place of the other.
func (p Path) Overlaps(other Path) bool {
	for i := range min(len(p.steps), len(other.steps)) {
		if a, b := p.steps[i], other.steps[i]; !a.any && !b.any && a.name != b.name {
			return false
		}
	}
	return true
}

// Find returns the value at an exact path, nil when there is none.
func (p Path) Find(raw []byte) []byte {
	for _, s := range p.steps {
		if raw = Member(raw, s.name); raw == nil {
			return nil
		}
	}
	return raw
}

// Paths is a set of paths, to walk an object with. It is immutable. The nil Paths is empty.
type Paths struct{ nodes []*pathNode }

type pathNode struct {
	names map[string]*pathNode
	any   *pathNode
	end   bool
}

// NewPaths makes the set of some paths.
func NewPaths(paths ...Path) *Paths {
	root := &pathNode{}
	for _, p := range paths {
		at := root
		for _, s := range p.steps {
			at = at.child(s)
		}
		at.end = true
	}
	return &Paths{nodes: []*pathNode{root}}
}

func (n *pathNode) child(s step) *pathNode {
	if s.any {
		if n.any == nil {
			n.any = &pathNode{}
		}
		return n.any
	}
	if n.names == nil {
		n.names = map[string]*pathNode{}
	}
	if n.names[s.name] == nil {
		n.names[s.name] = &pathNode{}
	}
	return n.names[s.name]
}

// none is where no path continues.
var none = &Paths{}

// Member returns what is left of the paths behind the member of a name.
func (p *Paths) Member(name string) *Paths {
	return p.step(func(n *pathNode) *pathNode { return n.names[name] })
}

// Item returns what is left of the paths behind an item of a list.
func (p *Paths) Item() *Paths {
	return p.step(func(*pathNode) *pathNode { return nil })
}

func (p *Paths) step(named func(*pathNode) *pathNode) *Paths {
	if p == nil {
		return none
	}
	var found []*pathNode
	for _, n := range p.nodes {
		if child := named(n); child != nil {
			found = append(found, child)
		}
		if n.any != nil {
			found = append(found, n.any)
		}
	}
	if found == nil {
		return none
	}
	return &Paths{nodes: found}
}

// Empty reports whether no path continues from here or ends here.
func (p *Paths) Empty() bool { return p == nil || len(p.nodes) == 0 }

// and is both sets together.
func (p *Paths) and(other *Paths) *Paths {
	if p.Empty() {
		return other
	}
	return &Paths{nodes: slices.Concat(p.nodes, other.nodes)}
}

// End reports whether a path ends here.
func (p *Paths) End() bool {
	return p != nil && slices.ContainsFunc(p.nodes, func(n *pathNode) bool { return n.end })
}
