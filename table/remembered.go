package table

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/zeebo/xxh3"
)

// remembered are the ids of the newest rows: a ring of hashes of 128 bits, 40 MB for a million.
type remembered struct {
	known map[xxh3.Uint128]struct{}
	ring  []xxh3.Uint128
	next  int
}

func newRemembered(limit int) *remembered {
	return &remembered{known: map[xxh3.Uint128]struct{}{}, ring: make([]xxh3.Uint128, 0, limit)}
}

// hashOf is of an id in a lane that began in an incarnation.
func hashOf(began int64, from, informer, id string) xxh3.Uint128 {
	return xxh3.HashString128(strconv.FormatInt(began, 10) + "\x00" + from + "\x00" + informer + "\x00" + id)
}

// add reports whether an id is new.
func (r *remembered) add(h xxh3.Uint128) bool {
	if _, found := r.known[h]; found {
		return false
	}
	r.known[h] = struct{}{}
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, h)
		return true
	}
	delete(r.known, r.ring[r.next])
	r.ring[r.next] = h
	r.next = (r.next + 1) % len(r.ring)
	return true
}

// load reads the ids of the newest rows of each lane back. Files whose positions all lie before
// are not read.
func (r *remembered) load(ctx context.Context, l *lake, p *position) error {
	if len(p.Lanes) == 0 || l.CurrentSnapshot() == nil {
		return nil
	}
	filter := iceberg.BooleanExpression(iceberg.AlwaysFalse{})
	for lane, at := range p.Lanes {
		filter = iceberg.NewOr(filter, iceberg.NewAnd(iceberg.EqualTo(iceberg.Reference(colLane), lane),
			iceberg.GreaterThanEqual(iceberg.Reference(colIncarnation), p.Began[lane]),
			iceberg.GreaterThanEqual(iceberg.Reference(colPosition), int64(at.Next)-int64(cap(r.ring)))))
	}
	newest := newestIDs{limit: cap(r.ring)}
	for batch, err := range l.scan(ctx, filter, "source", "informer", "id", colLane, colPosition) {
		if err != nil {
			return err
		}
		column := func(name string) *array.String {
			return batch.Column(batch.Schema().FieldIndices(name)[0]).(*array.String)
		}
		sources, informers, ids, lanes := column("source"), column("informer"), column("id"), column(colLane)
		positions := batch.Column(batch.Schema().FieldIndices(colPosition)[0]).(*array.Int64)
		for i := range int(batch.NumRows()) {
			lane := lanes.Value(i)
			newest.add(int64(p.Lanes[lane].Next)-positions.Value(i),
				hashOf(p.Began[lane], sources.Value(i), informers.Value(i), ids.Value(i)))
		}
		batch.Release()
	}
	// A scan has an order of its own: the newest of each lane are added last, to be forgotten last.
	for _, id := range slices.Backward(newest.sorted()) {
		r.add(id.hash)
	}
	return nil
}

// newestIDs are the ids that are the least behind the end of their lanes.
type newestIDs struct {
	limit int
	list  []laneID
}

type laneID struct {
	behind int64
	hash   xxh3.Uint128
}

func (n *newestIDs) add(behind int64, hash xxh3.Uint128) {
	if n.list = append(n.list, laneID{behind, hash}); len(n.list) > 2*n.limit {
		n.list = n.sorted()
	}
}

// sorted returns the newest first, each once: a snapshot row has the place of the row that it
// repeats.
func (n *newestIDs) sorted() []laneID {
	slices.SortFunc(n.list, func(a, b laneID) int {
		return cmp.Or(cmp.Compare(a.behind, b.behind), cmp.Compare(a.hash.Hi, b.hash.Hi),
			cmp.Compare(a.hash.Lo, b.hash.Lo))
	})
	list := slices.Compact(n.list)
	return list[:min(len(list), n.limit)]
}
