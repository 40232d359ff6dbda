package resource

import (
	"slices"
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

// Writes are the managedFields entries of one version of an object. Of each there are six texts,
// with a zero byte behind each: manager, operation, subresource, apiVersion, time, and fieldsV1.
// The last is kept only of the entries that may be of the newest write: those with the newest time,
// those without a time, and those with one of the future.
type Writes string

// Entry is one of them.
type Entry struct {
	FieldManager
	// Time of the newest write of this entry, by the API server's clock, in full seconds; zero
	// where it has none, as after a write of the subresource scale.
	Time time.Time

	mark   uint32
	fields string
}

// Written is what remains of the Writes of a version: enough to know which entries of the next
// version are new. It is a value of fixed size, since there is one in memory for each object.
type Written struct {
	// Floor is the time, in Unix seconds, up to which an entry without a mark is an old one; 0 when
	// every entry has a mark.
	Floor uint32
	// Marks stand for the entries; the first one for that of the manager that has set a
	// value last, 0 when that is not known. All are 0 where nothing is known.
	Marks [6]uint32
}

// all yields the entries, but for those that the API server makes itself: what it has gathered of
// managers long ago, and what was there before the first apply.
func (w Writes) all(yield func(Entry) bool) {
	for rest := string(w); rest != ""; {
		var e Entry
		if e, rest = nextEntry(rest); e.Manager == "ancient-changes" || e.Manager == "before-first-apply" {
			continue
		}
		if !yield(e) {
			return
		}
	}
}

// nextEntry takes the first entry off.
func nextEntry(entries string) (e Entry, rest string) {
	var at string
	e.Manager, rest, _ = strings.Cut(entries, "\x00")
	e.Operation, rest, _ = strings.Cut(rest, "\x00")
	e.Subresource, rest, _ = strings.Cut(rest, "\x00")
	_, rest, _ = strings.Cut(rest, "\x00")
	at, rest, _ = strings.Cut(rest, "\x00")
	e.mark = max(uint32(xxhash.Sum64String(entries[:len(entries)-len(rest)])), 1) // 0 is none
	e.fields, rest, _ = strings.Cut(rest, "\x00")
	e.Time, _ = time.Parse(time.RFC3339, at)
	return e, rest
}

// Newest returns the newest time of an entry, zero for none.
func (w Writes) Newest() (newest time.Time) {
	for e := range w.all {
		if e.Time.After(newest) {
			newest = e.Time
		}
	}
	return newest
}

// MayBeSince reports whether an entry may have been written since a time.
func (w Writes) MayBeSince(since time.Time) bool {
	for e := range w.all {
		if e.MayBeSince(since) {
			return true
		}
	}
	return false
}

// MayBeSince reports whether the entry may have been written since a time.
func (e *Entry) MayBeSince(t time.Time) bool { return e.Time.IsZero() || !e.Time.Before(t) }

// Is reports whether both are the same entry of one version.
func (e *Entry) Is(other *Entry) bool { return e.mark == other.mark }

// Sole returns the only entry; false when there is none, or more than one.
func (w Writes) Sole() (sole Entry, ok bool) {
	for e := range w.all {
		if ok {
			return Entry{}, false
		}
		sole, ok = e, true
	}
	return sole, ok
}

// Since returns an entry that is new in the version after before, and how many are: 0 where nothing
// is known of the version before. A write sets the time of one entry at most, that of its own
// manager, or makes that entry. So the one that is new is the writer's. Not every write leaves one:
// it has the time of the write before when both are of the same second, none when it is of the
// subresource scale, and a write that only removes fields leaves none at all.
func (w Writes) Since(before Written) (by Entry, n int) {
	if before == (Written{}) {
		return by, 0
	}
	for e := range w.all {
		if before.isNew(&e) {
			by = e
			n++
		}
	}
	return by, n
}

func (w *Written) isNew(e *Entry) bool {
	return !slices.Contains(w.Marks[:], e.mark) && (w.Floor == 0 || e.Time.Unix() > int64(w.Floor))
}

// After returns what remains of the Writes, of whose entries last is that of the manager that has
// set a value last; nil where that is not known.
func (w Writes) After(last *Entry) (after Written) {
	var times [len(after.Marks)]int64
	if last != nil {
		after.Marks[0] = last.mark
	}
	for e := range w.all {
		if e.mark == after.Marks[0] {
			continue
		}
		mark, at := e.mark, e.Time.Unix()
		// The newest first. One that does not fit raises the floor.
		for i := 1; i < len(after.Marks) && mark != 0; i++ {
			if after.Marks[i] == 0 || times[i] < at {
				after.Marks[i], mark = mark, after.Marks[i]
				times[i], at = at, times[i]
			}
		}
		if mark != 0 {
			after.Floor = max(after.Floor, uint32(min(max(at, 1), maxFloor)))
		}
	}
	return after
}

const maxFloor = 1<<32 - 1

// LastSetter returns the entry of the manager that has set a value last, if it is known and still
// there.
func (w Writes) LastSetter(known Written) (last Entry, ok bool) {
	for e := range w.all {
		if e.mark == known.Marks[0] {
			return e, true
		}
	}
	return Entry{}, false
}

func (w Writes) clone() Writes { return Writes(strings.Clone(string(w))) }

// entrySpans is where the texts of a managedFields entry are in the input.
type entrySpans struct{ manager, operation, subresource, apiVersion, time, fields span }

func (e *entrySpans) texts() [5]span {
	return [...]span{e.manager, e.operation, e.subresource, e.apiVersion, e.time}
}

// Times of entries are compared as the API server writes them, in UTC and without a fraction. What
// is written in another way is no time.
const timeForm = "2006-01-02T15:04:05Z"

// MaxClockSkew is how far the clocks of the API server and of this machine may be apart.
const MaxClockSkew = 5 * time.Minute

// dropOldFields leaves the fields to entries that may be of the newest write. One of the future is
// not newer than the others: a client may send any time.
func (p *parser) dropOldFields() {
	var text [len(timeForm)]byte
	future := view(time.Now().Add(MaxClockSkew).UTC().AppendFormat(text[:0], time.RFC3339))
	newest := ""
	for i := range p.writes.n {
		e := p.writes.at(i)
		if len(p.Text(e.time)) != len(timeForm) {
			e.time = span{}
		}
		if at := view(p.Text(e.time)); at < future {
			newest = max(newest, at)
		}
	}
	for i := range p.writes.n {
		if e := p.writes.at(i); e.time != (span{}) && view(p.Text(e.time)) < newest {
			e.fields = span{}
		}
	}
}

// writesSize returns what appendWrites appends at most.
func (p *parser) writesSize() (size int) {
	for i := range p.writes.n {
		e := p.writes.at(i)
		for _, text := range e.texts() {
			size += text.End - text.Start + 1
		}
		size += e.fields.End - e.fields.Start + 1
	}
	return size
}

// appendWrites appends the entries, but for one with a zero byte in it.
func (p *parser) appendWrites(out *strings.Builder) {
	for i := range p.writes.n {
		e := p.writes.at(i)
		texts := e.texts()
		if p.hasZero(&texts) {
			continue
		}
		for _, text := range texts {
			out.Write(p.Text(text))
			out.WriteByte(0)
		}
		out.Write(p.Bytes(e.fields))
		out.WriteByte(0)
	}
}

func (p *parser) hasZero(texts *[5]span) bool {
	for _, text := range texts {
		if strings.IndexByte(view(p.Text(text)), 0) >= 0 {
			return true
		}
	}
	return false
}
