package changelog

import (
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/store"
)

// drop is what becomes of everything before a position.
type drop struct {
	log     *Log
	before  Position
	goes    bool
	last    Position // position of the last entry that goes
	lost    Losses
	stays   []store.LogEntry
	stands  []stand // of the cursors
	cursors map[string][]byte
	gaps    map[string]gapEntry // the last of each reason
	passed  []Position          // positions of all gaps
}

// gapEntry is a gap that lies on disk.
type gapEntry struct {
	entry  store.LogEntry
	record record
}

// planDrop says what each listener loses when everything before a position is dropped, what has to
// stay, and where the listeners stand.
func (l *Log) planDrop(before Position) (*drop, error) {
	d := &drop{
		log: l, before: before, lost: newLosses(),
		cursors: map[string][]byte{}, gaps: map[string]gapEntry{}, stands: l.stands(),
	}
	for n, c := range l.cursors {
		d.cursors[c.name] = d.stands[n].encode()
	}
	for e, err := range l.cfg.Indexer.Log(0, uint64(before)) {
		if err != nil {
			return nil, err
		}
		at := Position(e.Position)
		r, _, err := decodeHeader(at, e.Data)
		if err != nil {
			return nil, err
		}
		if r.Kind == OfGap {
			d.gap(e, r)
		} else {
			d.lose(at, &r)
		}
	}
	for _, g := range d.gaps {
		d.stays = append(d.stays, g.entry)
	}
	return d, nil
}

// gap keeps a gap that somebody has not settled, in the place of an earlier one with its reason.
func (d *drop) gap(e store.LogEntry, r record) {
	at := Position(e.Position)
	d.passed = append(d.passed, at)
	if !d.isNeeded(at, &r) {
		d.lose(at, &r)
		return
	}
	kind := r.Relist.Reason + "/" + strings.Join(r.For, "/")
	if earlier, ok := d.gaps[kind]; ok {
		d.lose(Position(earlier.entry.Position), &earlier.record)
	}
	e.Data = slices.Clone(e.Data)
	d.gaps[kind] = gapEntry{e, r}
}

// isNeeded reports whether a listener has not acked an entry that is for it.
func (d *drop) isNeeded(at Position, r *record) bool {
	set := d.log.Set(r.For)
	for n, c := range d.log.cursors {
		if s := &d.stands[n]; set&c.bit != 0 && (at >= s.next || s.has(at)) {
			return true
		}
	}
	return false
}

// lose lets an entry go.
func (d *drop) lose(at Position, r *record) {
	d.goes, d.last = true, max(d.last, at)
	set := d.log.Set(r.For)
	for n, c := range d.log.cursors {
		d.lost.add(c, &d.stands[n], at, r, set, d.passed)
	}
}

// first is the position of the first entry that stays, before for none.
func (d *drop) first() Position {
	first := d.before
	for _, e := range d.stays {
		first = min(first, Position(e.Position))
	}
	return first
}
