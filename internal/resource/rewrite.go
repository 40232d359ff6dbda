package resource

import (
	"slices"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// rewriter copies JSON while it takes values out.
type rewriter struct {
	jsonscan.Scanner
	raw      []byte
	redactor objectRedactor
	out      []byte
	from     int        // what is before it was copied or taken out
	way      []waypoint // from the object to the value that comes next
	path     []byte     // of field, which uses it again
	before   string     // the argument of a command before the one that comes next
}

// waypoint is one member or item on the way to a value.
type waypoint struct {
	name  string // of a member; of an item its member "name", once it is known
	item  bool
	index int  // of an item
	named bool // an item whose name may be asked for
	at    int  // where the item begins
}

// maxNamed is how many levels deep items of lists are known by their names. Each level costs one
// more look at the bytes of an item, so without a bound a deep object costs its depth times its
// size.
const maxNamed = 64

// field returns the path of the value that comes next. Items with a name are known by it, so that
// an item that is put before them changes no fingerprint of theirs. The path is valid until the
// next call.
func (w *rewriter) field() []byte {
	field := w.path[:0]
	for i := range w.way {
		p := &w.way[i]
		if !p.item {
			field = appendMember(field, p.name)
			continue
		}
		if p.named {
			p.name, p.named = itemName(w.raw[p.at:]), false
		}
		field = appendItem(field, p.index, p.name)
	}
	w.path = field
	return field
}

// itemName returns the member "name" of an item, "" where that is no text.
func itemName(item []byte) string {
	name := Member(item, "name")
	s := jsonscan.Of(name)
	if s.Peek() != '"' {
		return ""
	}
	return string(s.Text(s.Quoted()))
}

// rulesHere is what holds at the value that comes next.
type rulesHere struct {
	redact, drop *Paths
	env          envState
}

// untouched reports whether nothing in the value can be meant.
func (p rulesHere) untouched() bool { return p.redact.Empty() && p.drop.Empty() && p.env == envNone }

func (w *rewriter) copyTo(end int) {
	if end > w.from {
		w.out = append(w.out, w.raw[w.from:end]...)
		w.from = end
	}
}

// value copies the value that comes next.
func (w *rewriter) value(at rulesHere) {
	switch {
	case at.redact.End():
		w.redact()
	case at.untouched():
		w.Skip()
	case at.env == envArgument:
		w.argument()
	case w.Peek() == '{':
		w.object(at)
	case w.Peek() == '[':
		w.before = ""
		w.array(at)
	default:
		w.Skip()
	}
}

// argument copies the argument of a command that comes next, with a fingerprint in place of a
// secret in it.
func (w *rewriter) argument() {
	if w.Peek() != '"' {
		w.Skip()
		return
	}
	start := w.Pos()
	text := string(w.Text(w.Quoted()))
	at := secretArgument(w.before, text)
	w.before = text
	if at < 0 || w.Err() != nil {
		return
	}
	w.copyTo(start)
	w.out = append(append(w.out, '"'), text[:at]...) // the name of a flag: nothing to escape
	quote := len(w.out)
	w.out = w.redactor.appendFingerprint(w.out, w.field(), []byte(text[at:]))
	w.out = slices.Delete(w.out, quote, quote+1)
	w.from = w.Pos()
}

// redact puts a fingerprint in the place of the value that comes next.
func (w *rewriter) redact() {
	w.Peek()
	start := w.Pos()
	value := textOf(&w.Scanner)
	if w.Err() != nil {
		return
	}
	w.copyTo(start)
	w.out = w.redactor.appendFingerprint(w.out, w.field(), value)
	w.from = w.Pos()
}

func (w *rewriter) object(at rulesHere) {
	kept := false
	for w.Open('{'); w.Next('}'); {
		before, end := w.Comma(), w.Pos()
		name := string(w.Key())
		inner := rulesHere{
			redact: at.redact.Member(name), drop: at.drop.Member(name),
			env: at.env.member(name),
		}
		w.way = append(w.way, waypoint{name: name})
		kept = w.element(inner, before, end, kept)
		w.way = w.way[:len(w.way)-1]
	}
}

func (w *rewriter) array(at rulesHere) {
	inner := rulesHere{redact: at.redact.Item(), drop: at.drop.Item(), env: at.env.item()}
	// A name that is taken out itself names nothing: it would be another one when the object is
	// read back.
	named := len(w.way) < maxNamed && inner.redact.Member("name").Empty() &&
		inner.drop.Member("name").Empty()
	kept, index := false, 0
	for w.Open('['); w.Next(']'); index++ {
		before, end := w.Comma(), w.Pos()
		item := inner
		if item.env == envVariable && w.secretVariable() {
			item.redact = item.redact.and(envValue)
		}
		w.way = append(w.way, waypoint{item: true, index: index, named: named, at: w.Pos()})
		kept = w.element(item, before, end, kept)
		w.way = w.way[:len(w.way)-1]
	}
}

// element copies a member or an item, or takes it out with one comma, so that what remains is JSON.
// before is where the comma before it stands, -1 for none, and end where the one before it ends
// when there is none.
func (w *rewriter) element(at rulesHere, before, end int, kept bool) bool {
	if at.drop.End() {
		w.Skip()
		if before >= 0 {
			end = before
		}
		w.copyTo(end)
		w.from = w.Pos()
		return kept
	}
	if !kept && before >= 0 {
		w.from = before + 1 // those before it were taken out
	}
	w.value(at)
	return true
}

// envState is how far the walk is on the way to an environment variable or an argument of a
// container, wherever containers are: in a Pod, or in the template of one.
type envState uint8

const (
	envNone       envState = iota
	envAnywhere            // not in a container
	envContainers          // in a list of containers
	envContainer           // in a container
	envVariables           // in its list of variables
	envVariable            // in a variable
	envArguments           // in the list of a command or of its arguments
	envArgument            // in an argument
)

func (s envState) member(name string) envState {
	switch s {
	case envAnywhere:
		switch name {
		case "containers", "initContainers", "ephemeralContainers":
			return envContainers
		}
		return envAnywhere
	case envContainer:
		switch name {
		case "env":
			return envVariables
		case "args", "command":
			return envArguments
		}
		return envNone
	default:
		return envNone
	}
}

func (s envState) item() envState {
	switch s {
	case envAnywhere:
		return envAnywhere
	case envContainers:
		return envContainer
	case envVariables:
		return envVariable
	case envArguments:
		return envArgument
	default:
		return envNone
	}
}

// envValue is the value of a variable.
var envValue = NewPaths(Path{steps: []step{{name: "value"}}})

// secretVariable reports whether the variable that comes next looks like a secret.
func (w *rewriter) secretVariable() bool {
	if w.Peek() != '{' {
		return false
	}
	var name, text string
	for member, value := range Members(w.raw[w.Pos():]) {
		s := jsonscan.Of(value)
		if s.Peek() != '"' {
			continue
		}
		switch member {
		case "name":
			name = string(s.Text(s.Quoted()))
		case "value":
			text = string(s.Text(s.Quoted()))
		}
	}
	return looksSecret(name, text)
}
