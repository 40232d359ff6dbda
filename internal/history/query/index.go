package query

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// ByIndex selects the objects that have a value of an index.
type ByIndex struct{ record.IndexValue }

// ByOwner selects what the object of a uid owns.
func ByOwner(uid string) *ByIndex {
	return &ByIndex{record.IndexValue{Index: keys.IndexOwner, Value: uid}}
}

// ByNode selects the pods on a node.
func ByNode(name string) *ByIndex {
	return &ByIndex{record.IndexValue{Index: keys.IndexNode, Value: name}}
}

// OwnersOf returns the uids of the owners of a version.
func OwnersOf(v *Version) (uids []string) {
	for _, value := range record.IndexValues(nil, v.Unit, v.Event.Data) {
		if value.Index == keys.IndexOwner {
			uids = append(uids, value.Value)
		}
	}
	return uids
}

// has reports whether a version has the value.
func (x *ByIndex) has(v *Version) bool {
	return slices.Contains(record.IndexValues(nil, v.Unit, v.Event.Data), x.IndexValue)
}

// prefix of the entries of a cluster.
func (x *ByIndex) prefix(source uint32) []byte {
	return keys.AppendIndex(make([]byte, 0, 128), source, x.Index, x.Value)
}

// wants returns which entries may be of objects that have the value at a point. By a version all
// may: a span has times.
func (x *ByIndex) wants(at Point) func(keys.IndexSpan) bool {
	switch {
	case at.IsZero():
		return func(s keys.IndexSpan) bool { return s.Until == 0 }
	case at.At.IsZero():
		return func(keys.IndexSpan) bool { return true }
	}
	second := keys.Seconds(at.At)
	return func(s keys.IndexSpan) bool { return s.Has(second) }
}

// UnitsWith returns those of some units whose resource may have had objects with a value: of most
// owners it is one of all resources.
func (h Objects) UnitsWith(units []*record.Unit, x *ByIndex) (list []*record.Unit, err error) {
	it, err := h.db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{keys.SpaceIndex}, UpperBound: []byte{keys.SpaceIndex + 1},
	})
	if err != nil {
		return nil, h.db.ReadError(err)
	}
	defer it.Close()
	resources := map[string]bool{}
	for _, u := range units {
		prefix := binary.BigEndian.AppendUint32(x.prefix(u.SourceNumber), u.Number)
		if it.SeekGE(prefix) && bytes.HasPrefix(it.Key(), prefix) {
			resources[u.Source+u.GroupResource()] = true
		}
	}
	for _, u := range units {
		if resources[u.Source+u.GroupResource()] {
			list = append(list, u)
		}
	}
	return list, h.db.ReadError(it.Error())
}

// ValueSpan is the time in which an object had a value of an index.
type ValueSpan struct {
	Object
	UID  string
	Span keys.IndexSpan
}

// ValueSpans returns the times in which objects of some units had a value, as far as they overlap
// the time from since to until; zero times are no limits. The error is the last element.
func (h Objects) ValueSpans(
	units []*record.Unit, x *ByIndex, since, until time.Time,
) iter.Seq2[ValueSpan, error] {
	return func(yield func(ValueSpan, error) bool) {
		sources := map[uint32]bool{}
		for _, u := range units {
			if sources[u.SourceNumber] {
				continue
			}
			sources[u.SourceNumber] = true
			hasMore, err := h.valueSpansIn(u.SourceNumber, units, x, since, until, yield)
			if err != nil {
				yield(ValueSpan{}, h.db.ReadError(err))
			}
			if err != nil || !hasMore {
				return
			}
		}
	}
}

func (h Objects) valueSpansIn(
	source uint32, units []*record.Unit, x *ByIndex, since, until time.Time,
	yield func(ValueSpan, error) bool,
) (hasMore bool, err error) {
	from, to := keys.Seconds(since), uint32(math.MaxUint32)
	if !until.IsZero() {
		to = keys.Seconds(until)
	}
	prefix := x.prefix(source)
	it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	if err != nil {
		return false, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		span, isSpan := keys.ReadIndexSpan(value)
		found, isKey := keys.SplitIndexed(it.Key()[len(prefix):])
		if err != nil || !isSpan || !isKey {
			return false, cmp.Or(err, record.ErrUnreadable)
		}
		u := h.db.Unit(found.Unit)
		if !span.Overlaps(from, to) || !slices.Contains(units, u) {
			continue
		}
		object := Object{u, found.Namespace, found.Name}
		if !yield(ValueSpan{object, found.UID, span}, nil) {
			return false, nil
		}
	}
	return true, it.Error()
}
