package resource

import (
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// FieldManager is who wrote fields of an object, as a managedFields entry has it. The name is one
// that the client chose.
type FieldManager struct {
	Manager     string `json:"manager,omitempty"`
	Operation   string `json:"operation,omitempty"`   // Update or Apply
	Subresource string `json:"subresource,omitempty"` // "" for the object itself
}

// Writes are the managedFields entries of the newest second, of those that have a time.
type Writes struct {
	// At is that second, in Unix time; 0 for no entry.
	At uint32
	// Entries are the identities of the entries: of each the manager, the operation, the
	// subresource and the apiVersion, with a zero byte behind each.
	Entries string
}

// Written is what remains of the Writes of all versions of an object so far: enough to know who
// made its next version.
type Written struct {
	// At is the newest second of an entry, 0 for none. It never goes back.
	At uint32
	// Entries is made of hashes of the entries of that second, when it was seen last.
	Entries uint32
}

// Time of the entries, zero for none.
func (w Writes) Time() time.Time {
	if w.At == 0 {
		return time.Time{}
	}
	return time.Unix(int64(w.At), 0).UTC()
}

// Sole returns the field manager of the only entry; false when there is none, or more than one.
func (w Writes) Sole() (FieldManager, bool) {
	by, _, rest := nextEntry(w.Entries)
	if rest != "" {
		return FieldManager{}, false
	}
	return by, w.Entries != ""
}

// Since returns the field manager of the version with these Writes, if they show it beside what was
// written before. A write sets the time of at most one entry, that of its own manager. So it is the
// writer's when no entry was as new before, or all others of the same second were there already.
// Not every write leaves an entry: one that only removes fields has none, and then no entry is new.
func (w Writes) Since(before Written) (by FieldManager, ok bool) {
	switch {
	case w.At > before.At:
		return w.Sole()
	case w.At < before.At || w.At == 0:
		return by, false
	}
	all := w.hash()
	for rest := w.Entries; rest != ""; {
		var hash uint32
		if by, hash, rest = nextEntry(rest); all^hash == before.Entries {
			return by, true
		}
	}
	return FieldManager{}, false
}

// After returns what remains of the Writes of the next version. An older second than one before
// says that a client has sent older managedFields: what was seen before stays.
func (w Writes) After(before Written) Written {
	if w.At < before.At || w.At == 0 {
		return before
	}
	return Written{At: w.At, Entries: w.hash()}
}

func (w Writes) clone() Writes { return Writes{At: w.At, Entries: strings.Clone(w.Entries)} }

// hash of all entries. It is the same in any order of them.
func (w Writes) hash() (all uint32) {
	for rest := w.Entries; rest != ""; {
		var hash uint32
		_, hash, rest = nextEntry(rest)
		all ^= hash
	}
	return all
}

// nextEntry takes the first entry off.
func nextEntry(entries string) (by FieldManager, hash uint32, rest string) {
	by.Manager, rest, _ = strings.Cut(entries, "\x00")
	by.Operation, rest, _ = strings.Cut(rest, "\x00")
	by.Subresource, rest, _ = strings.Cut(rest, "\x00")
	_, rest, _ = strings.Cut(rest, "\x00")
	return by, uint32(xxhash.Sum64String(entries[:len(entries)-len(rest)])), rest
}

// entrySpans is where the identity of a managedFields entry is in the input.
type entrySpans struct{ manager, operation, subresource, apiVersion, time span }

func (e *entrySpans) identity() [4]span {
	return [...]span{e.manager, e.operation, e.subresource, e.apiVersion}
}

// Times of entries are compared as the API server writes them, in UTC and without a fraction. What
// is written in another way, or does not fit into Writes, is no time. That does not depend on the
// clock: an entry that is none in one version is none in the next.
const (
	minTime = "1970-01-02T00:00:00Z"
	maxTime = "2106-01-01T00:00:00Z"
)

// recordWrite adds an entry to those of the newest second, or begins with it again.
func (p *parser) recordWrite(e *entrySpans) {
	at := view(p.Bytes(e.time))
	if len(at) != len(minTime) || at < minTime || at >= maxTime {
		return
	}
	if p.writes.n > 0 {
		switch newest := view(p.Bytes(p.writes.at(0).time)); {
		case at < newest:
			return
		case at > newest:
			p.writes.clear()
		}
	}
	p.writes.add(*e)
}

// writtenAt returns the second of the entries, 0 when there are none.
func (p *parser) writtenAt() uint32 {
	if p.writes.n == 0 {
		return 0
	}
	at, err := time.Parse(time.RFC3339, view(p.Bytes(p.writes.at(0).time)))
	if err != nil {
		p.writes.clear()
		return 0
	}
	return uint32(at.Unix())
}

// writesSize returns what appendWrites appends at most.
func (p *parser) writesSize() (size int) {
	for i := range p.writes.n {
		for _, text := range p.writes.at(i).identity() {
			size += text.End - text.Start + 1
		}
	}
	return size
}

// appendWrites appends the identities of the entries, but for one with a zero byte in it.
func (p *parser) appendWrites(out *strings.Builder) {
	for i := range p.writes.n {
		identity := p.writes.at(i).identity()
		if p.hasZero(&identity) {
			continue
		}
		for _, text := range identity {
			out.Write(p.Text(text))
			out.WriteByte(0)
		}
	}
}

func (p *parser) hasZero(identity *[4]span) bool {
	for _, text := range identity {
		if strings.IndexByte(view(p.Text(text)), 0) >= 0 {
			return true
		}
	}
	return false
}
