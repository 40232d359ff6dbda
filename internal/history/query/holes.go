package query

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource"
)

// Notice is something that the stream says about itself.
type Notice struct {
	Unit  *record.Unit
	Event event.Event
	Time  time.Time
	// Reason of a gap: "expired", "dropped", "forgotten", "removed", and others.
	Reason string
	// From and To are resourceVersions, Since and Until are the times between which something may
	// be missing, where that is known.
	From, To     string
	Since, Until time.Time
	// Singly is as that of a Removal.
	Singly bool
}

// Type and reasons of the notice for what a stream had removed before an archiver read it, for a
// batch that can't be read, and for what was lost with a stream that was recreated.
const (
	TypeRemoved     = "dev.kubebridge.informer.gap"
	ReasonRemoved   = "removed"
	ReasonDamaged   = "damaged"
	ReasonRecreated = "recreated"
)

// Removal is the data of such a notice.
type Removal struct {
	Reason string `json:"reason"`
	Lane   string `json:"lane"`
	// From and To are the offsets of the first and the last message that is missing.
	From string `json:"from"`
	To   string `json:"to"`
	// Since and Until are when the messages before and behind were stored.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Singly: no limit of the stream has removed them.
	Singly bool `json:"singly,omitempty"`
}

// Notices returns the notices about a unit from one time to another, and about the archive itself,
// in their order. A zero time is no limit. The error is the last element.
func (h Coverage) Notices(u *record.Unit, since, until time.Time) iter.Seq2[*Notice, error] {
	return func(yield func(*Notice, error) bool) {
		for _, other := range h.db.Units() {
			if other != u && (other.Source != record.ArchiveSource || u.Source == record.ArchiveSource) {
				continue
			}
			if !h.eachNotice(other, since, until, yield) {
				return
			}
		}
	}
}

// eachNotice reports whether to continue.
func (h Coverage) eachNotice(u *record.Unit, since, until time.Time, yield func(*Notice, error) bool) bool {
	prefix := keys.InUnit(nil, keys.SpaceNotice, u.Number)
	it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	if err != nil {
		yield(nil, h.db.ReadError(err))
		return false
	}
	defer it.Close()
	synced := map[Scope]time.Time{}
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			var m *Notice
			if m, err = ReadNotice(u, value); err == nil {
				if m.Event.Op == event.Gap && m.Since.IsZero() && m.Event.Source != record.ArchiveSource {
					if m.Since, err = h.lastSeen(m, synced[m.Scope()]); err != nil {
						yield(nil, h.db.ReadError(err))
						return false
					}
				}
				if m.Event.Op == event.Synced {
					synced[m.Scope()] = m.Time
				}
				begins, ends := m.span()
				if !since.IsZero() && ends.Before(since) || !until.IsZero() && begins.After(until) {
					continue
				}
				if !yield(m, nil) {
					return false
				}
				continue
			}
		}
		yield(nil, h.db.ReadError(err))
		return false
	}
	if err := it.Error(); err != nil {
		yield(nil, h.db.ReadError(err))
		return false
	}
	return true
}

// lastSeen returns the time of the newest version of the cluster that is not behind the beginning
// of a gap, or of the list before where that is later. Events of earlier bridges do not say since
// when a gap is one: it is one since then. It reads the timeline back to that time.
func (h Coverage) lastSeen(gap *Notice, listed time.Time) (seen time.Time, err error) {
	from, err := strconv.ParseUint(gap.From, 10, 64)
	if err != nil {
		return listed, nil // it does not say where it begins
	}
	at, source := keys.Seconds(gap.Time), gap.Unit.SourceNumber
	it, err := h.db.NewIter(&pebble.IterOptions{
		LowerBound: keys.AppendBucket(nil, source, keys.Seconds(listed)/keys.BucketSeconds),
		UpperBound: keys.AppendBucket(nil, source, at/keys.BucketSeconds+1),
	})
	if err != nil {
		return seen, err
	}
	defer it.Close()
	last, bucket := uint32(0), uint32(0)
	for ok := it.Last(); ok; ok = it.Prev() {
		e, isKey := keys.DecodeEntry(it.Key())
		if !isKey {
			return seen, record.ErrUnreadable
		}
		if last > 0 && e.Second/keys.BucketSeconds != bucket {
			break
		}
		if e.Second <= at && e.Second > last && e.Version <= from && e.Seq.Era <= gap.Epoch() {
			last, bucket = e.Second, e.Second/keys.BucketSeconds
		}
	}
	if seen = time.Unix(int64(last), 0); last == 0 || seen.Before(listed) {
		seen = listed
	}
	return seen, it.Error()
}

// ReadNotice reads a notice of a unit. Not every gap says since when it is one.
func ReadNotice(u *record.Unit, document []byte) (*Notice, error) {
	e, err := record.ReadNotice(document)
	if err != nil {
		return nil, err
	}
	m := &Notice{Unit: u, Event: e, Time: record.TimeOf(&e)}
	var data Removal
	if json.Unmarshal(e.InformerData(), &data) == nil { // another payload has no reason
		m.Reason, m.From, m.To, m.Since, m.Until = data.Reason, data.From, data.To, data.Since,
			data.Until
		m.Singly = data.Singly
		if m.IsUnwatched() && m.Until.IsZero() {
			m.Until = m.Time
		}
	}
	return m, nil
}

// Epoch counts how often versions began again, as the sequence of the notice says.
func (m *Notice) Epoch() uint32 {
	return keys.ParseSequence(m.Event.Sequence, m.Event.ResourceVersion, false).Era
}

// Scope is what one list of an informer covers of its resource.
type Scope struct {
	Namespace string // "" for all
	Shard     resource.Shard
}

// Scope returns what the notice is about.
func (m *Notice) Scope() Scope {
	s := Scope{Namespace: m.Event.Namespace}
	if _, text, isShard := strings.Cut(m.Event.ID, "/shard-"); isShard && m.Event.AboutInformer() {
		text, _, _ = strings.Cut(text, "/")
		s.Shard, _ = resource.ParseShard(strings.Replace(text, "-of-", "/", 1)) // forged: all
	}
	return s
}

// Has reports whether an object of a unit is in the scope.
func (s Scope) Has(u *record.Unit, namespace, name string) bool {
	return (s.Namespace == "" || s.Namespace == namespace) &&
		s.Shard.Has(resource.Type{Group: u.Group, Resource: u.Resource}, namespace, name)
}

// Begins returns when something began to be missing.
func (m *Notice) Begins() time.Time {
	begins, _ := m.span()
	return begins
}

// HoleReport is a hole as JSON.
type HoleReport struct {
	What     string    `json:"what"`
	Reason   string    `json:"reason,omitempty"`
	Informer string    `json:"informer,omitempty"`
	Resource string    `json:"resource,omitempty"`
	From     string    `json:"from,omitempty"`
	To       string    `json:"to,omitempty"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"`
}

// Report returns the hole as JSON.
func (m *Notice) Report() HoleReport {
	begins, ends := m.Begins(), m.Until
	if ends.IsZero() && m.Time.After(begins) {
		ends = m.Time // of a gap of a bridge, when it listed again
	}
	r := HoleReport{
		m.What(), m.Reason, m.Unit.Informer, m.Unit.GroupResource(), m.From, m.To, begins, ends,
	}
	if m.IsUnwatched() {
		r.Reason, r.To = "unwatched", m.Event.ResourceVersion
	}
	return r
}

// IsHole reports whether something may be missing because of what the notice says.
func (m *Notice) IsHole() bool { return m.Event.Op != event.Synced && m.Event.Op != event.Progress }

// What names in a few words what may be missing, or what was not watched.
func (m *Notice) What() string {
	switch {
	case m.IsUnwatched():
		return "nobody watched " + m.Unit.GroupResource()
	case m.Event.Op == event.Quarantined:
		return "a version that could not be parsed"
	case m.Event.Op != event.Gap:
		return "an event of type " + m.Event.Type + " that names no version"
	case m.Reason == ReasonRecreated:
		return "what the stream had when it was recreated, and was not read"
	case m.Reason == ReasonDamaged:
		return fmt.Sprintf("messages %s to %s, in a batch that can't be read", m.From, m.To)
	case m.Reason == ReasonRemoved:
		by := "which the stream had removed before they were read"
		if m.Singly {
			by = "which somebody had removed from the stream"
		}
		return fmt.Sprintf("messages %s to %s, %s", m.From, m.To, by)
	case m.Reason == "dropped":
		return fmt.Sprintf("dropped events, versions %s to %s", cmp.Or(m.From, "the first"), m.To)
	}
	return fmt.Sprintf("gap (%s), versions %s to %s", cmp.Or(m.Reason, "unknown"),
		cmp.Or(m.From, "the first"), m.To)
}

// Warning is for the reader of an answer that crosses the hole, or lies in a time in which nobody
// watched.
func (m *Notice) Warning() string {
	if m.IsUnwatched() {
		return fmt.Sprintf("%s from %s to %s: what changed then became known later", m.What(),
			ShowTime(m.Since), ShowTime(m.Until))
	}
	until := ""
	if !m.Until.IsZero() {
		until = " to " + ShowTime(m.Until)
	}
	return fmt.Sprintf("this answer may be incomplete: %s, %s%s", m.What(), ShowTime(m.Time), until)
}

// NoticeGroup is notices of several resources of which the same is to be said.
type NoticeGroup struct {
	*Notice   // the first one
	Resources int
}

// GroupNotices returns notices in groups, each where its first notice was.
func GroupNotices(notices []*Notice) (groups []*NoticeGroup) {
	byText := map[string]*NoticeGroup{}
	for _, m := range notices {
		text := m.Warning()
		if m.IsUnwatched() {
			text = fmt.Sprint(m.Since.Unix(), m.Until.Unix())
		}
		g := byText[text]
		if g == nil {
			g = &NoticeGroup{Notice: m}
			byText[text], groups = g, append(groups, g)
		}
		g.Resources++
	}
	return groups
}

// Warning is that of the notice, for all resources of the group.
func (g *NoticeGroup) Warning() string {
	text := g.Notice.Warning()
	switch {
	case g.Resources == 1:
	case g.IsUnwatched():
		text = strings.Replace(text, g.Unit.GroupResource(), fmt.Sprint(g.Resources, " resources"), 1)
	default:
		text += fmt.Sprintf(" (%d resources)", g.Resources)
	}
	return text
}

// span returns the time in which something may be missing.
func (m *Notice) span() (begins, ends time.Time) {
	begins, ends = m.Time, m.Time
	if !m.Since.IsZero() && m.Since.Before(begins) {
		begins = m.Since
	}
	if m.Until.After(ends) {
		ends = m.Until
	}
	return begins, ends
}

// versions returns the versions between which something is missing; false where they are no
// numbers, or were used twice.
func (m *Notice) versions() (from, to uint64, ok bool) {
	to, err := strconv.ParseUint(m.To, 10, 64)
	if m.From != "" && err == nil {
		from, err = strconv.ParseUint(m.From, 10, 64)
	}
	return from, to, err == nil && from <= to && m.Event.Source != record.ArchiveSource
}

// covers reports whether something may be missing right at a point. A list that came later does not
// say what was there.
func (m *Notice) covers(p Point) bool {
	switch {
	case p.Version > 0:
		from, to, ok := m.versions()
		return ok && from < p.Version && p.Version < to
	case p.At.IsZero() || m.Event.Op != event.Gap:
		return false
	}
	begins, _ := m.span()
	return p.At.After(begins) && p.At.Before(m.Time)
}

// Concerns reports whether a notice is about an object, as one of a version of another object is
// not.
func (m *Notice) Concerns(o *Object) bool {
	key := m.Event.PartitionKey
	if m.Event.Op != event.Quarantined || !strings.Contains(key, "/") {
		return m.Scope().Has(o.Unit, o.Namespace, o.Name)
	}
	return key == o.Unit.GroupResource()+"/"+o.Namespace+"/"+o.Name
}

// object returns the object of a version that could not be parsed; nil where the notice names none.
func (m *Notice) object() *Object {
	parts := strings.Split(m.Event.PartitionKey, "/")
	if m.Event.Op != event.Quarantined || len(parts) != 3 {
		return nil
	}
	return &Object{Unit: m.Unit, Namespace: parts[1], Name: parts[2]}
}

// isHealed reports whether a list that ends after the notice reports the state again, deletes
// included.
func (m *Notice) isHealed(synced time.Time) bool {
	switch m.Reason {
	case "expired", "rewound", "interrupted", "takeover", "unreadable":
		return m.Event.Op == event.Gap && m.Event.Source != record.ArchiveSource && synced.After(m.Time)
	}
	return false
}

// Holes returns what may be missing of an object's versions from one time to another.
func (h Coverage) Holes(o *Object, since, until time.Time) (holes []*Notice, err error) {
	for m, err := range h.Notices(o.Unit, since, until) {
		if err != nil {
			return nil, err
		}
		if m.IsHole() && m.Concerns(o) {
			holes = append(holes, m)
		}
	}
	return holes, nil
}

// Uncertain returns the holes because of which an object may have been another one at a point than
// v, its last version before; nil for none. A list heals a hole for what comes after the list.
func (h Coverage) Uncertain(o *Object, v *Version, p Point) (holes []*Notice, err error) {
	var synced time.Time
	for m, err := range h.Notices(o.Unit, time.Time{}, time.Time{}) {
		switch {
		case err != nil:
			return nil, err
		case !m.Concerns(o):
		case m.Event.Op == event.Synced && m.isUpTo(p) && m.Time.After(synced):
			synced = m.Time
		case !m.IsHole():
		case m.covers(p):
			isShown, err := h.shows(m, o, v)
			if err != nil {
				return nil, err
			}
			if !isShown {
				holes = append(holes, m)
			}
		case m.isUpTo(p) && !m.endsBefore(v):
			holes = append(holes, m)
		}
	}
	return slices.DeleteFunc(holes, func(m *Notice) bool { return !m.covers(p) && m.isHealed(synced) }),
		nil
}

// shows reports whether the list after a gap has a version that came within the gap, and no other
// one of the object: then it had this one from then on. That an object is gone a later list may
// have shown, and then the one after the gap may not have had it.
func (h Coverage) shows(m *Notice, o *Object, v *Version) (bool, error) {
	from, to, ok := m.versions()
	if !ok || v == nil || v.Deleted() || !v.seq.IsNumber() || v.seq.Version <= from ||
		v.seq.Version > to {
		return false, nil
	}
	r, err := newReader(h.db)
	if err != nil {
		return false, err
	}
	defer r.Close()
	prefix := o.prefix()
	if !r.it.SeekGE(append(v.seq.Append(bytes.Clone(prefix)), 0)) || !bytes.HasPrefix(r.it.Key(), prefix) {
		return true, r.err()
	}
	next, err := r.version()
	if err != nil {
		return false, err
	}
	isLater := next.seq.Era > v.seq.Era || next.seq.Entered > v.seq.Entered || next.seq.Version > to
	return isLater && !(next.Deleted() && next.Event.Inferred), nil
}

// endsBefore reports whether a version came after a hole.
func (m *Notice) endsBefore(v *Version) bool {
	_, ends := m.span()
	return v != nil && ends.Before(v.Time)
}

// isUpTo reports whether a notice is not behind a point. A notice of the archive has no version,
// and is before every point.
func (m *Notice) isUpTo(p Point) bool {
	if p.Version == 0 {
		return p.At.IsZero() || !m.Time.After(p.At)
	}
	n, err := strconv.ParseUint(m.Event.ResourceVersion, 10, 64)
	return err != nil || n <= p.Version
}

// HolesOf returns what may be missing of the objects of units from one time to another, and when
// there was no watch of them, in the order in which it began.
func (h Coverage) HolesOf(units []*record.Unit, since, until time.Time) (holes []*Notice, err error) {
	seen := map[string]bool{}
	for _, u := range units {
		for m, err := range h.Notices(u, since, until) {
			if err != nil {
				return nil, err
			}
			if (m.IsHole() || m.IsUnwatched()) && !seen[m.Event.ID] {
				seen[m.Event.ID] = true
				holes = append(holes, m)
			}
		}
	}
	slices.SortStableFunc(holes, func(a, b *Notice) int { return a.Begins().Compare(b.Begins()) })
	return holes, nil
}
