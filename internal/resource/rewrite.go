package resource

import "github.com/kubebridge/bridge/internal/jsonscan"

// rewriter copies JSON while it takes values out.
type rewriter struct {
	jsonscan.Scanner
	raw      []byte
	redactor *Redactor
	out      []byte
	from     int // what is before it was copied or taken out
}

// place is what holds at the value that comes next.
type place struct {
	redact, drop *Paths
	env          envState
}

// untouched says whether nothing in the value can be meant.
func (p place) untouched() bool { return p.redact.Empty() && p.drop.Empty() && p.env == envNone }

func (w *rewriter) copyTo(end int) {
	if end > w.from {
		w.out = append(w.out, w.raw[w.from:end]...)
		w.from = end
	}
}

// value copies the value that comes next.
func (w *rewriter) value(at place) {
	switch {
	case at.redact.End():
		w.redact()
	case at.untouched():
		w.Skip()
	case w.Peek() == '{':
		w.object(at)
	case w.Peek() == '[':
		w.array(at)
	default:
		w.Skip()
	}
}

// redact puts a fingerprint in the place of the value that comes next.
func (w *rewriter) redact() {
	isString := w.Peek() == '"'
	at := w.Skip()
	if w.Err() != nil {
		return
	}
	value := w.Bytes(at)
	if isString {
		value = w.Text(inner(at))
	}
	w.copyTo(at.Start)
	w.out = append(w.out, w.redactor.fingerprint(value)...)
	w.from = at.End
}

func (w *rewriter) object(at place) {
	kept := false
	for w.Open('{'); w.Next('}'); {
		before, end := w.Comma(), w.Pos()
		name := string(w.Key())
		inner := place{redact: at.redact.Member(name), drop: at.drop.Member(name), env: at.env.member(name)}
		kept = w.element(inner, before, end, kept)
	}
}

func (w *rewriter) array(at place) {
	inner := place{redact: at.redact.Item(), drop: at.drop.Item(), env: at.env.item()}
	kept := false
	for w.Open('['); w.Next(']'); {
		before, end := w.Comma(), w.Pos()
		item := inner
		if item.env == envVariable && w.secretVariable() {
			item.redact = item.redact.and(envValue)
		}
		kept = w.element(item, before, end, kept)
	}
}

// element copies a member or an item, or takes it out with one comma, so that what remains is JSON. before is where the comma
// before it stands, -1 for none, and end where the one before it ends when there is none.
func (w *rewriter) element(at place, before, end int, kept bool) bool {
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
