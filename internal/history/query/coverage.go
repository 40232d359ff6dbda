package query

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource"
)

// CoverageQuery says what a coverage is wanted of.
type CoverageQuery struct {
	Units []*record.Unit
	// Namespace of the objects; "*" for all.
	Namespace string
	// Since leaves out what had ended by then.
	Since time.Time
}

// Interval is versions of a resource that were read without a break, or a gap between two of them.
type Interval struct {
	Cluster   string `json:"cluster"`
	Informer  string `json:"informer"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"` // of an informer of one namespace
	Shard     string `json:"shard,omitempty"`     // "0/3", of an informer that has a share
	// From and To are resourceVersions: of a complete interval the first and the last that was
	// reached; of a gap those right before and behind it. "" where that is not known.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Epoch counts how often versions began again, as a restore of etcd makes them: the number that
	// the sequence of an event begins with. Of a gap it is that of To.
	Epoch uint32 `json:"epoch,omitempty"`
	// Since and Until are when From and To were reached.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Gap says why versions are missing, "" where none are: expired, rewound, dropped, …,
	// quarantined, retention; unknown where the stream does not say what it is complete up to.
	Gap string `json:"gap,omitempty"`
	// Object of a quarantined version, as namespace/name; "" of all others.
	Object string `json:"object,omitempty"`
	// Unwatched are the times without a watch: what changed then was read later.
	Unwatched []UnwatchedTime `json:"unwatched,omitempty"`
}

// UnwatchedTime is from when to when there was no watch.
type UnwatchedTime struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Has reports whether a version of an epoch lies in the interval: behind From, up to To.
func (i *Interval) Has(epoch uint32, version uint64) bool {
	from, errFrom := strconv.ParseUint(cmp.Or(i.From, "0"), 10, 64)
	to, errTo := strconv.ParseUint(i.To, 10, 64)
	isOne := i.Gap != "" && from == to
	return errFrom == nil && errTo == nil && i.Epoch == epoch && version <= to &&
		(version > from || isOne && version == from)
}

// Scope returns what the interval is about.
func (i *Interval) Scope() Scope {
	s := Scope{Namespace: i.Namespace}
	if i.Shard != "" {
		s.Shard, _ = resource.ParseShard(i.Shard) // it was made of one
	}
	return s
}

// LongestUnwatched returns the longest time without a watch.
func (i *Interval) LongestUnwatched() (longest time.Duration) {
	for _, u := range i.Unwatched {
		longest = max(longest, u.Until.Sub(u.Since))
	}
	return longest
}

// Intervals returns what of each resource was read without a break, and the gaps: by informer and
// resource, and each in the order of time.
func (h Coverage) Intervals(q CoverageQuery) (list []Interval, err error) {
	horizon, err := h.Horizon()
	if err != nil {
		return nil, err
	}
	for _, u := range q.Units {
		if u.Resource == "" {
			continue
		}
		scopes, err := h.scopes(u)
		if err != nil {
			return nil, err
		}
		for _, scope := range scopes {
			if scope.Namespace != "" && q.Namespace != "*" && scope.Namespace != q.Namespace {
				continue
			}
			of, err := h.intervalsOf(u, scope, horizon)
			if err != nil {
				return nil, err
			}
			list = append(list, of...)
		}
	}
	slices.SortStableFunc(list, func(a, b Interval) int {
		return cmp.Or(cmp.Compare(a.Informer, b.Informer), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Shard, b.Shard))
	})
	return slices.DeleteFunc(list, func(i Interval) bool {
		return !i.Until.IsZero() && i.Until.Before(q.Since)
	}), nil
}

// scopes returns what an informer reads each by itself: namespaces, shards, or all.
func (h Coverage) scopes(u *record.Unit) (list []Scope, err error) {
	known := map[Scope]bool{}
	for m, err := range h.Notices(u, time.Time{}, time.Time{}) {
		if err != nil {
			return nil, err
		}
		if m.Unit == u && m.Event.AboutInformer() {
			known[m.Scope()] = true
		}
	}
	for m, err := range h.progress(u) {
		if err != nil {
			return nil, err
		}
		known[m.Scope()] = true
	}
	if len(known) == 0 {
		return []Scope{{}}, nil // the stream says nothing about itself
	}
	return slices.Collect(maps.Keys(known)), nil
}

// intervalWalk makes the intervals of one resource in one scope of its notices.
type intervalWalk struct {
	list []Interval
	of   Interval  // what all of them have in common
	now  *Interval // that grows; nil in a gap, and before the first list
}

// intervalsOf follows the notices of a scope. They are in the order of time.
func (h Coverage) intervalsOf(u *record.Unit, scope Scope, horizon time.Time) ([]Interval, error) {
	w := newIntervalWalk(u, scope)
	for m, err := range h.Notices(u, time.Time{}, time.Time{}) {
		if err != nil {
			return nil, err
		}
		isArchive := m.Event.Source == record.ArchiveSource
		if !isArchive && (m.Unit != u || m.Event.AboutInformer() && m.Scope() != scope) {
			continue
		}
		w.add(m)
	}
	for m, err := range h.progress(u) {
		if err != nil {
			return nil, err
		}
		if m.Scope() == scope {
			w.end(m)
		}
	}
	w.close()
	if !horizon.IsZero() {
		w.forget(horizon)
	}
	return w.list, nil
}

func newIntervalWalk(u *record.Unit, scope Scope) *intervalWalk {
	w := &intervalWalk{of: Interval{
		Cluster: u.Cluster(), Informer: u.Informer, Resource: u.GroupResource(), Namespace: scope.Namespace,
	}}
	if !scope.Shard.All() {
		w.of.Shard = scope.Shard.String()
	}
	return w
}

func (w *intervalWalk) add(m *Notice) {
	switch {
	case m.Event.Op == event.Synced && m.Event.AboutInformer():
		w.begin(m.Event.ResourceVersion, m.Epoch(), m.Time)
	case m.IsUnwatched():
		if w.now == nil {
			w.begin(m.From, m.Epoch(), m.Since)
		}
		w.now.Unwatched = append(w.now.Unwatched, UnwatchedTime{m.Since, m.Until})
		w.reach(m)
	case m.Event.Op == event.Quarantined:
		gap := w.of
		gap.Gap, gap.Since, gap.Until = "quarantined", m.Time, m.Time
		gap.From, gap.To, gap.Epoch = m.Event.ResourceVersion, m.Event.ResourceVersion, m.Epoch()
		if o := m.object(); o != nil {
			gap.Object = o.Namespace + "/" + o.Name
		}
		w.list = append(w.list, gap)
	case m.IsHole():
		w.gap(m)
	}
}

// begin ends a gap, where there is one, and begins what is complete.
func (w *intervalWalk) begin(version string, epoch uint32, at time.Time) {
	if n := len(w.list); w.now == nil && n > 0 && w.list[n-1].Gap != "" && w.list[n-1].Until.IsZero() {
		w.list[n-1].To, w.list[n-1].Epoch, w.list[n-1].Until = version, epoch, at
	}
	if w.now != nil { // a list that follows a list: nothing is missing between
		w.reachVersion(version, at)
		return
	}
	first := w.of
	first.From, first.To, first.Epoch, first.Since, first.Until = version, version, epoch, at, at
	w.now = &first
}

func (w *intervalWalk) reach(m *Notice) {
	if w.now == nil {
		w.begin(m.Event.ResourceVersion, m.Epoch(), m.Time)
		return
	}
	w.reachVersion(m.Event.ResourceVersion, m.Time)
}

func (w *intervalWalk) reachVersion(version string, at time.Time) {
	if at.After(w.now.Until) {
		w.now.To, w.now.Until = cmp.Or(version, w.now.To), at
	}
}

// gap ends what is complete. A gap that a list heals lasts until that list; of others it is known
// which versions they have, and what follows is complete. What the stream had removed has no
// versions, but places in the stream.
func (w *intervalWalk) gap(m *Notice) {
	gap := w.of
	gap.Gap, gap.Epoch = cmp.Or(m.Reason, string(m.Event.Op)), m.Epoch()
	gap.Since, _ = m.span()
	isArchive := m.Event.Source == record.ArchiveSource
	if !isArchive {
		gap.From = m.From
	}
	if w.now != nil {
		if isArchive {
			gap.Epoch = w.now.Epoch
		}
		if w.now.To, w.now.Until = cmp.Or(gap.From, w.now.To), gap.Since; gap.Since.Before(w.now.Since) {
			w.now.Until = w.now.Since
		}
		w.list = append(w.list, *w.now)
		w.now = nil
	}
	if isHealed := m.isHealed(m.Time.Add(1)) || m.Reason == "forgotten"; isHealed {
		w.list = append(w.list, gap)
		return
	}
	if _, gap.Until = m.span(); !isArchive {
		gap.To = m.To
	}
	w.list = append(w.list, gap)
	w.begin(gap.To, gap.Epoch, gap.Until)
}

// end ends the last interval where the stream says that it is complete up to. What is stored behind
// that may lack changes that are under way.
func (w *intervalWalk) end(progress *Notice) {
	if w.now != nil {
		w.reach(progress)
	}
}

func (w *intervalWalk) close() {
	if w.now != nil {
		w.list = append(w.list, *w.now)
	}
	if len(w.list) == 0 {
		unknown := w.of
		unknown.Gap = "unknown"
		w.list = append(w.list, unknown)
	}
}

// IntervalsOf returns what the notices of one scope of a unit say, which are in their order: as
// Coverage.Intervals does, of a stream that is in no history. progress are the newest ones, of each
// partition.
func IntervalsOf(u *record.Unit, scope Scope, notices, progress []*Notice) []Interval {
	w := newIntervalWalk(u, scope)
	for _, m := range notices {
		w.add(m)
	}
	for _, m := range progress {
		w.end(m)
	}
	w.close()
	return w.list
}

// forget makes a gap of what retention has removed.
func (w *intervalWalk) forget(horizon time.Time) {
	w.list = slices.DeleteFunc(w.list, func(i Interval) bool {
		return !i.Until.IsZero() && i.Until.Before(horizon)
	})
	if len(w.list) == 0 || !w.list[0].Since.Before(horizon) {
		return
	}
	removed := w.of
	removed.Gap, removed.Until = "retention", horizon
	w.list[0].From, w.list[0].Since = "", horizon
	w.list = slices.Insert(w.list, 0, removed)
}

// StoredKey names a version that is stored.
type StoredKey struct {
	Object
	Sequence keys.Sequence
	Op       event.Op
	Time     time.Time
}

// Stored returns what is stored of a unit: each object's versions in their order, one object behind
// the other. The error is the last element.
func (h Coverage) Stored(u *record.Unit) iter.Seq2[StoredKey, error] {
	return func(yield func(StoredKey, error) bool) {
		prefix := keys.InUnit(nil, keys.SpaceVersion, u.Number)
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
		if err != nil {
			yield(StoredKey{}, h.db.ReadError(err))
			return
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			_, namespace, name, seq, isKey := keys.SplitVersion(it.Key())
			value, err := it.ValueAndErr()
			var head record.Header
			if err == nil && isKey {
				head, err = record.ReadHeader(value)
			}
			if err != nil || !isKey {
				yield(StoredKey{}, h.db.ReadError(cmp.Or(err, record.ErrUnreadable)))
				return
			}
			if !yield(StoredKey{Object{u, namespace, name}, seq, head.Op, head.Time}, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(StoredKey{}, h.db.ReadError(err))
		}
	}
}

// Event returns the event of a version that is stored, without what the object held.
func (h Coverage) Event(v *StoredKey) (*event.Event, error) {
	found, err := StoredVersion(h.db, &v.Object, v.Sequence)
	if err != nil || found == nil {
		return nil, cmp.Or(h.db.ReadError(err), record.ErrUnreadable)
	}
	return &found.Event, nil
}

// Notes returns the notices of a unit itself, and its newest progress of each partition. Those of
// one scope have its namespace.
func (h Coverage) Notes(u *record.Unit) (notices, progress []*Notice, err error) {
	for m, err := range h.Notices(u, time.Time{}, time.Time{}) {
		if err != nil {
			return nil, nil, err
		}
		if m.Unit == u {
			notices = append(notices, m)
		}
	}
	for m, err := range h.progress(u) {
		if err != nil {
			return nil, nil, err
		}
		progress = append(progress, m)
	}
	return notices, progress, nil
}
