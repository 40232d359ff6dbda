package changelog

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Listeners is a set of the listeners of an informer. The n-th has the bit 1<<n.
type Listeners uint64

// Kind of an entry.
type Kind uint8

const (
	// OfObject is a change of an object.
	OfObject Kind = iota
	// OfGap reports that versions are missing.
	OfGap
	// OfListEnd reports that a list was worked through.
	OfListEnd
	// OfDropped reports what one listener has lost since the log on disk was full.
	OfDropped
	// OfQuarantined reports something that can't be understood.
	OfQuarantined
	// OfProgress reports that everything up to a version comes before it.
	OfProgress
)

// Position is the number of an entry in the order of appending, from 1 on. An entry on disk keeps
// it over restarts.
type Position uint64

// Entry is a change, or an event about the informer. It does not change once it has a rank.
type Entry struct {
	event.Change
	Kind    Kind             `json:"kind,omitempty"`
	Relist  *resource.Relist `json:"relist,omitempty"` // of a gap
	Listing event.Listing    `json:"listing,omitzero"` // of a list that was worked through
	// Since is the version after which the list's changes happened; "" for all.
	Since      resource.Version     `json:"since,omitempty"`
	Loss       event.LossReport     `json:"loss,omitzero"`        // of what was dropped
	Unreadable *resource.Unreadable `json:"unreadable,omitempty"` // of what was quarantined
	// AskBroker is set on a gap that is reported only when the sink's broker holds events of an
	// earlier run. The sink was unavailable before the list, so its listener asks when it reaches
	// the gap.
	AskBroker bool `json:"unasked,omitempty"`
	// DeltaVersion is the version of the delta, where that is not the change's own. OfList is set
	// when the delta has none: only the end of its list has a version.
	DeltaVersion resource.Version `json:"deltaVersion,omitempty"`
	OfList       bool             `json:"ofList,omitempty"`

	// For is the set of listeners that get the entry.
	For Listeners `json:"-"`
	// Seq orders the changes of the informer.
	Seq uint64 `json:"-"`
	// Written is what to remember of the managedFields. Forget is set when nothing is to be
	// remembered of a deleted object.
	Written resource.Written `json:"-"`
	Forget  bool             `json:"-"`
	// Position in the log, from Append on.
	Position Position `json:"-"`

	rank Rank // in the order of decision; 0 of one that was read from disk
	entryState
}

// entryState is how far an entry in memory is settled. It is guarded by Log.mu.
type entryState struct {
	size    int  // in bytes; 0 when all have acked it, or it has left memory
	spooled bool // it lies on disk too, or will with the next commit, and is settled
	waiting int  // how many listeners have not acked it
	// holds are those of listeners that have acked it while others have not.
	holds []Hold
}

// Hold keeps the saved position of a sink from passing an entry's message: *publisher.PositionHold.
type Hold interface{ Release() }

// AboutAll reports whether the entry is about all objects, or about an unknown one: then no other
// entry may pass it. A quarantined entry of a known object is in order with that object's events
// only. So it does not wait for other objects, which may have no topic.
func (k Kind) AboutAll(key resource.Key) bool {
	return k != OfObject && (k != OfQuarantined || key == "")
}

// LeavesState reports whether the entry becomes the settled state of its object.
func (e *Entry) LeavesState() bool { return e.Kind == OfObject && e.Op != event.Synced }

// State returns the state that the entry leaves of its object.
func (e *Entry) State() store.NewState {
	s := store.NewState{Object: e.Object, Seq: e.Seq, Record: store.Record{
		UID: e.UID, Version: e.Version, Written: e.Written, EventTime: e.Time.UnixNano(),
	}}
	if e.Op == event.Deleted {
		s.Deleted, s.Object, s.Version = true, nil, cmp.Or(e.GoneAsOf, e.Version)
		if e.Forget {
			s.Version = "" // a tombstone would cover it
		}
	}
	return s
}

// stateKey returns the key of the object whose state the entry leaves, "" for none.
func (e *Entry) stateKey() resource.Key {
	if e.LeavesState() {
		return e.Key
	}
	return ""
}

// overhead is what an entry costs besides its objects: the struct and its places in queues, rounded
// up.
const overhead = 512

// Size returns the bytes that the entry takes in memory.
func (e *Entry) Size() int {
	size := overhead
	if e.Unreadable != nil {
		size += e.Unreadable.Bytes()
	}
	for _, obj := range []*resource.Object{e.Object, e.Old} {
		if obj != nil {
			size += len(obj.Raw)
		}
	}
	return size
}

// Header is what a listener needs to know of an entry to read ahead.
type Header struct {
	Position Position
	Kind     Kind
	Key      resource.Key
	Op       event.Op
	UID      string
	Observed time.Time
	// DeltaVersion is the version of the delta, also where that is the change's own; "" where
	// only a list's end says it. Epoch is that of the version, and OfList as in Entry.
	DeltaVersion resource.Version
	Epoch        int
	OfList       bool
	// Tried is set when the sink may have the event that was made of it.
	Tried bool
}

// Header describes the entry.
func (e *Entry) Header() Header {
	return Header{
		Position: e.Position, Kind: e.Kind, Key: e.Key, Op: e.Op, UID: e.UID, Observed: e.Observed,
		DeltaVersion: e.deltaVersion(), Epoch: e.Epoch, OfList: e.OfList,
	}
}

func (e *Entry) deltaVersion() resource.Version {
	switch {
	case e.Kind == OfQuarantined:
		return e.Unreadable.Version
	case e.Kind == OfDropped:
		return e.Loss.To
	}
	return cmp.Or(e.DeltaVersion, e.Version)
}

func (s Listeners) count() int { return bits.OnesCount64(uint64(s)) }

// ListenersOf returns the listeners of sinks by name, all for no names. Unknown sinks are left out.
func (l *Log) ListenersOf(names []string) Listeners {
	if len(names) == 0 {
		return l.everyone
	}
	var set Listeners
	for _, c := range l.cursors {
		if slices.Contains(names, c.name) {
			set |= c.bit
		}
	}
	return set
}

// names returns the sinks of a set of listeners; none for all.
func (l *Log) names(set Listeners) []string {
	if set&l.everyone == l.everyone {
		return nil
	}
	var names []string
	for _, c := range l.cursors {
		if set&c.bit != 0 {
			names = append(names, c.name)
		}
	}
	return names
}

// record is the form of an entry on disk: its length, a JSON header, and one S2 block. The block
// has the object's bytes, and those of the object before it where a listener needs them.
type record struct {
	Entry
	// For is the sinks of the entry; empty for all.
	For       []string `json:"for,omitempty"`
	HasObject bool     `json:"object,omitempty"`
	// OldBytes is the number of bytes at the block's end that are the object before the update.
	// They cost little there, since they are nearly the same.
	OldBytes int `json:"oldBytes,omitempty"`
}

// encode returns the entry's form on disk.
func (l *Log) encode(e *Entry) ([]byte, error) {
	r := record{Entry: *e, For: l.names(e.For)}
	var raw []byte
	if e.Object != nil {
		r.HasObject, raw = true, e.Object.Raw
	}
	if e.Old != nil {
		r.OldBytes = len(e.Old.Raw)
		raw = slices.Concat(raw, e.Old.Raw)
	}
	return r.join(raw)
}

// join returns the form on disk of a record and the bytes of its objects.
func (r *record) join(raw []byte) ([]byte, error) {
	header, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode an entry for the log on disk: %w", err)
	}
	var size [binary.MaxVarintLen64]byte
	var block []byte
	if r.HasObject {
		block = s2.Encode(nil, raw)
	}
	// Exactly as long as it is: it stays in memory until it is committed, and an object takes
	// several times the room of its block.
	return slices.Concat(size[:binary.PutUvarint(size[:], uint64(len(header)))], header, block), nil
}

// maxDecoded is more than two objects can have: the reflector refuses what is larger than 16 MiB.
// The length of a block comes from the disk, and nothing is allocated for one that no entry has.
const maxDecoded = 64 << 20

// errRecord reports a log that this bridge can't read.
var errRecord = errors.New("the log on disk is damaged, or of another version of the bridge; " +
	"restore the state directory from a copy, or reset the informer")

// decodeHeader decodes an entry without its objects, and returns their block.
func decodeHeader(at Position, data []byte) (r record, block []byte, err error) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return r, nil, fmt.Errorf("entry %d: %w", at, errRecord)
	}
	header, block := data[n:n+int(size)], data[n+int(size):]
	if err := json.Unmarshal(header, &r); err != nil {
		return r, nil, fmt.Errorf("entry %d: %w: %w", at, errRecord, err)
	}
	return r, block, nil
}

// decode decodes an entry for the one listener that reads it.
func (l *Log) decode(at Position, data []byte) (*Entry, error) {
	r, raw, old, err := split(at, data)
	if err != nil {
		return nil, err
	}
	e := &r.Entry
	e.For, e.Position = l.ListenersOf(r.For), at
	if !r.HasObject {
		return e, nil
	}
	if e.Object, err = resource.Restore(raw, l.cfg.Type); err != nil {
		return nil, fmt.Errorf("entry %d: %w: %w", at, errRecord, err)
	}
	if r.OldBytes > 0 { // payloads are made of its bytes alone
		e.Old = &resource.Object{Raw: slices.Clone(old), Meta: resource.Meta{Version: e.Before}}
	}
	return e, nil
}

// split decodes an entry into its record, the bytes of its object and those of the object before
// it.
func split(at Position, data []byte) (r record, raw, old []byte, err error) {
	r, block, err := decodeHeader(at, data)
	if err != nil || !r.HasObject {
		return r, nil, nil, err
	}
	if n, err := s2.DecodedLen(block); err != nil || n > maxDecoded {
		return r, nil, nil, fmt.Errorf("entry %d: %w: its objects have %d bytes, at most %d are "+
			"written: %w", at, errRecord, n, maxDecoded, errors.Join(err, s2.ErrTooLarge))
	}
	if raw, err = s2.Decode(nil, block); err != nil {
		return r, nil, nil, fmt.Errorf("entry %d: %w: %w", at, errRecord, err)
	}
	if r.OldBytes < 0 || r.OldBytes > len(raw) {
		return r, nil, nil, fmt.Errorf("entry %d: %w", at, errRecord)
	}
	now := len(raw) - r.OldBytes
	return r, raw[:now], raw[now:], nil
}

// droppedEntries is what a cursor needed of the entries that were dropped from the log on disk
// (L9). Losses are counted on a cursorState, outside the lock, and then given to the cursor.
type droppedEntries struct {
	// kept are entries that only this cursor has, in order of their positions: gaps, the last of
	// each reason, and events about losses. They are read, acked and restored as all others, and
	// never changed: a commit may be encoding them.
	kept []*Entry
	// inFlight counts the entries that were pending below a position when they were dropped. They
	// are lost only if the process ends before their acks.
	inFlight event.LossReport
	below    Position
	at       time.Time // of the last drop
}

// isEmpty reports whether nothing depends on a drop any more.
func (ls *droppedEntries) isEmpty() bool { return len(ls.kept) == 0 && ls.inFlight.Events == 0 }

// find returns the kept entry at a position, nil for none.
func (ls *droppedEntries) find(at Position) *Entry {
	if n, found := slices.BinarySearchFunc(ls.kept, at, byPosition); found {
		return ls.kept[n]
	}
	return nil
}

// from returns the kept entries at and behind a position.
func (ls *droppedEntries) from(at Position) []*Entry {
	n, _ := slices.BinarySearchFunc(ls.kept, at, byPosition)
	return ls.kept[n:]
}

func (ls *droppedEntries) keep(e *Entry) {
	n, _ := slices.BinarySearchFunc(ls.kept, e.Position, byPosition)
	ls.kept = slices.Insert(ls.kept, n, e)
}

func byPosition(e *Entry, at Position) int { return cmp.Compare(e.Position, at) }

// settle forgets what the cursor has acked: everything before next that is not pending.
func (ls *droppedEntries) settle(next Position, pending *pendingEntries) {
	ls.kept = slices.DeleteFunc(ls.kept, func(e *Entry) bool {
		_, isPending := pending.find(e.Position)
		return e.Position < next && !isPending
	})
	if low, _, ok := pending.low(); !ok || low >= ls.below {
		ls.inFlight = event.LossReport{}
	}
}

// loss returns what a stream lacks without the entry. The entry of a list stands for all of the
// list.
func (e *Entry) loss() event.LossReport {
	switch {
	case e.Kind == OfGap:
		return event.Between(e.Relist.From, e.Relist.To)
	case e.Kind == OfListEnd:
		return event.Between(e.Since, e.Version)
	case e.Kind == OfProgress:
		return event.LossReport{From: e.Version, To: e.Version} // of no change
	case e.Unreadable != nil:
		return event.LossReport{Events: 1, From: e.Unreadable.Version, To: e.Unreadable.Version}
	default: // what a list found to be gone went somewhere in between
		own := event.LossReport{Events: 1, From: e.Version, To: e.Version}
		return own.And(event.LossReport{From: e.DeltaVersion, To: e.DeltaVersion})
	}
}

// droppedRecord is the form of droppedEntries on disk.
type droppedRecord struct {
	Kept     []keptRecord     `json:"kept,omitempty"`
	InFlight event.LossReport `json:"inFlight,omitzero"`
	Below    Position         `json:"below,omitempty"`
	At       time.Time        `json:"at,omitzero"`
}

type keptRecord struct {
	Position Position `json:"position"`
	Entry    *Entry   `json:"entry"`
}

// append appends the form on disk; nothing when it is empty.
func (ls *droppedEntries) append(dst []byte) ([]byte, error) {
	if ls.isEmpty() {
		return dst, nil
	}
	r := droppedRecord{InFlight: ls.inFlight, Below: ls.below, At: ls.at}
	for _, e := range ls.kept {
		r.Kept = append(r.Kept, keptRecord{e.Position, e})
	}
	data, err := json.Marshal(r)
	return append(dst, data...), err
}

func decodeDropped(b []byte) (ls droppedEntries, err error) {
	if len(b) == 0 {
		return ls, nil
	}
	var r droppedRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return ls, errRecord
	}
	ls = droppedEntries{inFlight: r.InFlight, below: r.Below, at: r.At}
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
