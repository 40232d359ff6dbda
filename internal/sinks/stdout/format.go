package stdout

import (
	"cmp"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
)

// appendJSONLine appends a structured CloudEvent. A payload may hold line breaks between its JSON
// tokens, and nowhere else: as spaces they mean the same, and the event stays one line.
func appendJSONLine(dst []byte, e *event.Event) []byte {
	begin := len(dst)
	dst = event.AppendStructured(dst, e)
	for i := begin; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return append(dst, '\n')
}

// shortFormat is a line for people: time, op, resource, object, who, version.
type shortFormat struct{ colour bool }

// ANSI colours.
const (
	reset   = "\x1b[0m"
	dim     = "\x1b[2m"
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
)

var opColours = map[event.Op]string{
	event.Added: green, event.Updated: yellow, event.Deleted: red, event.Synced: cyan,
	event.Gap: magenta,
}

func (f shortFormat) appendLine(dst []byte, e *event.Event) []byte {
	dst = f.paint(dst, dim, e.Time.Local().Format("15:04:05.000"))
	dst = append(dst, ' ')
	dst = f.paint(dst, opColours[e.Op], pad(string(e.Op), len(event.Updated)))
	dst = append(dst, ' ')
	dst = append(dst, printable(what(e))...)
	dst = append(dst, ' ')
	dst = append(dst, printable(who(e))...)
	if e.Manager != "" {
		dst = f.paint(append(dst, ' '), dim, "by "+printable(e.Manager))
	}
	if e.ResourceVersion != "" {
		dst = f.paint(append(dst, ' '), dim, "@"+printable(e.ResourceVersion))
	}
	for _, note := range notes(e) {
		dst = append(dst, ' ')
		dst = f.paint(dst, magenta, printable(note))
	}
	return append(dst, '\n')
}

func (f shortFormat) paint(dst []byte, colour, text string) []byte {
	if !f.colour || colour == "" {
		return append(dst, text...)
	}
	dst = append(dst, colour...)
	dst = append(dst, text...)
	return append(dst, reset...)
}

// what is the kind of thing: "deployments.apps", or "informer" for events about one.
func what(e *event.Event) string {
	switch {
	case e.Resource == "":
		return "informer"
	case e.Group == "":
		return e.Resource
	default:
		return e.Resource + "." + e.Group
	}
}

// who is its name.
func who(e *event.Event) string {
	switch {
	case e.Resource == "":
		return e.Informer
	case e.Namespace == "":
		return e.Name
	default:
		return e.Namespace + "/" + e.Name
	}
}

// notes are what does not hold for most events: flags, the cause, the data of an event about an
// informer, a dead letter's reason.
func notes(e *event.Event) (notes []string) {
	if e.Initial {
		notes = append(notes, "initial")
	}
	if e.Inferred {
		notes = append(notes, "inferred")
	}
	if e.Cause != "" {
		notes = append(notes, e.Cause)
	}
	if e.Resource == "" && len(e.Data) > 0 {
		notes = append(notes, string(e.Data))
	}
	for _, a := range e.Extensions {
		notes = append(notes, a.Name+"="+cmp.Or(a.Value, `""`))
	}
	return notes
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-len(text)))
}

// printable keeps control characters away from the terminal: a name or a manager may come from
// anyone.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r <= 0x9f {
			return '?'
		}
		return r
	}, text)
}
