package informer

import (
	"math/bits"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/store"
)

// drop is what becomes of everything before a position.
type drop struct {
	informer *Informer
	before   uint64
	goes     bool
	last     uint64 // position of the last entry that goes
	lost     losses
	stays    []store.LogEntry
	stands   []cursor // of the listeners
	cursors  map[string][]byte
	gaps     map[string]gapEntry // the last of each reason
	passed   []uint64            // positions of all gaps
}

// gapEntry is a gap that lies on disk.
type gapEntry struct {
	entry  store.LogEntry
	record record
}

// weigh says what each listener loses when everything before a position is dropped, what has to stay, and where the listeners stand.
func (i *Informer) weigh(before uint64) (*drop, error) {
	d := &drop{informer: i, before: before, lost: newLosses(), cursors: map[string][]byte{}, gaps: map[string]gapEntry{}}
	for _, l := range i.listeners {
		stand := l.stand()
		d.stands = append(d.stands, stand)
		d.cursors[l.cfg.Name] = stand.encode()
	}
	for e, err := range i.cfg.Indexer.Log(0, before) {
		if err != nil {
			return nil, err
		}
		r, _, err := decodeHeader(e.Position, e.Data)
		if err != nil {
			return nil, err
		}
		if r.Kind == ofGap {
			d.gap(e, r)
		} else {
			d.lose(e.Position, &r)
		}
	}
	for _, g := range d.gaps {
		d.stays = append(d.stays, g.entry)
	}
	return d, nil
}

// gap keeps a gap that somebody has not settled, in the place of an earlier one with its reason.
func (d *drop) gap(e store.LogEntry, r record) {
	d.passed = append(d.passed, e.Position)
	if !d.waitsFor(e.Position, &r) {
		d.lose(e.Position, &r)
		return
	}
	kind := r.Relist.Reason + "/" + strings.Join(r.For, "/")
	if earlier, ok := d.gaps[kind]; ok {
		d.lose(earlier.entry.Position, &earlier.record)
	}
	e.Data = slices.Clone(e.Data)
	d.gaps[kind] = gapEntry{e, r}
}

// waitsFor says whether a listener has not settled an entry that is for it.
func (d *drop) waitsFor(position uint64, r *record) bool {
	for audience := d.informer.audience(r.For); audience != 0; audience &= audience - 1 {
		stand := &d.stands[bits.TrailingZeros64(audience)]
		if position >= stand.next || stand.has(position) {
			return true
		}
	}
	return false
}

// lose lets an entry go.
func (d *drop) lose(position uint64, r *record) {
	d.goes, d.last = true, max(d.last, position)
	audience := d.informer.audience(r.For)
	for n, l := range d.informer.listeners {
		d.lost.add(l, &d.stands[n], position, r, audience, d.passed)
	}
}

// first is the position of the first entry that stays, before for none.
func (d *drop) first() uint64 {
	first := d.before
	for _, e := range d.stays {
		first = min(first, e.Position)
	}
	return first
}
