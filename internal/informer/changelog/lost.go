package changelog

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/event"
)

// lost is what a cursor needed of the entries that were dropped from the log on disk (L9). Losses
// are counted on a stand, outside the lock, and then given to the cursor.
type lost struct {
	// kept are entries that only this cursor has, in order of their positions: gaps, the last of
	// each reason, and events about losses. They are read, acked and restored as all others, and
	// never changed: a commit may be encoding them.
	kept []*Entry
	// inFlight is about what was pending below a position when it was dropped: lost only if the
	// process ends before it is acked.
	inFlight event.Loss
	below    Position
	at       time.Time // of the last drop
}

// isEmpty reports whether nothing depends on a drop any more.
func (ls *lost) isEmpty() bool { return len(ls.kept) == 0 && ls.inFlight.Events == 0 }

// find gives the kept entry at a position, nil for none.
func (ls *lost) find(at Position) *Entry {
	if n, found := slices.BinarySearchFunc(ls.kept, at, byPosition); found {
		return ls.kept[n]
	}
	return nil
}

// from gives the kept entries at and behind a position.
func (ls *lost) from(at Position) []*Entry {
	n, _ := slices.BinarySearchFunc(ls.kept, at, byPosition)
	return ls.kept[n:]
}

func (ls *lost) keep(e *Entry) {
	n, _ := slices.BinarySearchFunc(ls.kept, e.Position, byPosition)
	ls.kept = slices.Insert(ls.kept, n, e)
}

func byPosition(e *Entry, at Position) int { return cmp.Compare(e.Position, at) }

// settle forgets what a cursor has acked: all before next but what is pending.
func (ls *lost) settle(next Position, pending *pending) {
	ls.kept = slices.DeleteFunc(ls.kept, func(e *Entry) bool {
		_, isPending := pending.find(e.Position)
		return e.Position < next && !isPending
	})
	if low, _, ok := pending.low(); !ok || low >= ls.below {
		ls.inFlight = event.Loss{}
	}
}

// loss is what a stream lacks without the entry: of one about a list, what that stands for.
func (e *Entry) loss() event.Loss {
	switch {
	case e.Kind == OfGap:
		return event.Between(e.Relist.From, e.Relist.To)
	case e.Kind == OfListEnd:
		return event.Between(e.Since, e.Version)
	case e.Kind == OfProgress:
		return event.Loss{From: e.Version, To: e.Version} // of no change
	case e.Unreadable != nil:
		return event.Loss{Events: 1, From: e.Unreadable.Version, To: e.Unreadable.Version}
	default: // what a list found to be gone went somewhere in between
		own := event.Loss{Events: 1, From: e.Version, To: e.Version}
		return own.And(event.Loss{From: e.DeltaVersion, To: e.DeltaVersion})
	}
}

// lostRecord is the form on disk.
type lostRecord struct {
	Kept     []keptRecord `json:"kept,omitempty"`
	InFlight event.Loss   `json:"inFlight,omitzero"`
	Below    Position     `json:"below,omitempty"`
	At       time.Time    `json:"at,omitzero"`
}

type keptRecord struct {
	Position Position `json:"position"`
	Entry    *Entry   `json:"entry"`
}

// append encodes it; nothing when it is empty.
func (ls *lost) append(dst []byte) ([]byte, error) {
	if ls.isEmpty() {
		return dst, nil
	}
	r := lostRecord{InFlight: ls.inFlight, Below: ls.below, At: ls.at}
	for _, e := range ls.kept {
		r.Kept = append(r.Kept, keptRecord{e.Position, e})
	}
	data, err := json.Marshal(r)
	return append(dst, data...), err
}

func decodeLost(b []byte) (ls lost, err error) {
	if len(b) == 0 {
		return ls, nil
	}
	var r lostRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return ls, errRecord
	}
	ls = lost{inFlight: r.InFlight, below: r.Below, at: r.At}
	for _, k := range r.Kept {
		isGap := k.Entry != nil && k.Entry.Kind == OfGap && k.Entry.Relist != nil
		isLoss := k.Entry != nil && k.Entry.Kind == OfDropped
		if !isGap && !isLoss || ls.find(k.Position) != nil {
			return ls, errRecord
		}
		k.Entry.Position = k.Position
		ls.keep(k.Entry)
	}
	return ls, nil
}
