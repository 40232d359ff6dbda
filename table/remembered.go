package table

import (
	"context"

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

// add reports whether the id is new.
func (r *remembered) add(from, informer, id string) bool {
	h := xxh3.HashString128(from + "\x00" + informer + "\x00" + id)
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
			iceberg.GreaterThanEqual(iceberg.Reference(colPosition), int64(at.Next)-int64(cap(r.ring)))))
	}
	filter = iceberg.NewAnd(filter, iceberg.EqualTo(iceberg.Reference(colIncarnation), p.Incarnation))
	for batch, err := range l.scan(ctx, filter, "source", "informer", "id") {
		if err != nil {
			return err
		}
		column := func(name string) *array.String {
			return batch.Column(batch.Schema().FieldIndices(name)[0]).(*array.String)
		}
		sources, informers, ids := column("source"), column("informer"), column("id")
		for i := range int(batch.NumRows()) {
			r.add(sources.Value(i), informers.Value(i), ids.Value(i))
		}
		batch.Release()
	}
	return nil
}
