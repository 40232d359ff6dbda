package query

import (
	"bytes"
	"cmp"
	"iter"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Head says which version of an object is the newest.
type Head struct {
	Object  Object
	Era     uint32
	Version uint64
	Deleted bool
}

// Heads are the newest versions of all objects of units in a namespace, "*" for all, without what
// they hold. The error is the last element.
func (h Objects) Heads(units []*record.Unit, namespace string) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		r, err := newReader(h.db)
		if err != nil {
			yield(Head{}, err)
			return
		}
		defer r.Close()
		for _, u := range units {
			goOn, err := r.heads(u, namespace, yield)
			if err != nil {
				yield(Head{}, h.db.ReadError(err))
			}
			if err != nil || !goOn {
				return
			}
		}
	}
}

func (r *reader) heads(
	u *record.Unit, namespace string, yield func(Head, error) bool,
) (goOn bool, err error) {
	names := keys.InUnit(nil, keys.SpaceVersion, u.Number)
	if namespace != "*" {
		names = append(append(names, namespace...), keys.Separator)
	}
	for ok := r.it.SeekGE(names); ok && bytes.HasPrefix(r.it.Key(), names); {
		prefix, ns, name, _, isKey := keys.SplitVersion(r.it.Key())
		prefix = bytes.Clone(prefix)
		if !isKey || !r.it.SeekLT(keys.After(prefix)) {
			return false, cmp.Or(r.it.Error(), record.ErrUnreadable)
		}
		seq, isSequence := keys.DecodeSequence(r.it.Key()[len(prefix):])
		if !isSequence {
			return false, record.ErrUnreadable
		}
		if !yield(Head{Object{u, ns, name}, seq.Era, seq.Version, seq.Deleted}, nil) {
			return false, nil
		}
		ok = r.it.SeekGE(keys.After(prefix))
	}
	return true, r.it.Error()
}

// VersionAt is the highest resourceVersion of a cluster up to a time, of the newest for the zero
// time: among the last changes before it, since times and versions may disagree by seconds. 0 for
// none.
func (h Timeline) VersionAt(cluster string, at time.Time) (highest uint64, err error) {
	err = h.lastBuckets(cluster, at, func(e *keys.Entry) {
		if at.IsZero() || e.Second <= keys.Seconds(at) {
			highest = max(highest, e.Version)
		}
	})
	return highest, err
}

// TimeOf is when the last change up to a resourceVersion of a cluster was, the zero time for none.
func (h Timeline) TimeOf(cluster string, version uint64) (last time.Time, err error) {
	for _, u := range h.db.Units() {
		if u.Cluster() != cluster || u.Resource == "" {
			continue
		}
		prefix := keys.Timeline(u.SourceNumber)
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
		if err != nil {
			return last, h.db.ReadError(err)
		}
		for ok := it.Last(); ok; ok = it.Prev() {
			e, isKey := keys.DecodeEntry(it.Key())
			if at := time.Unix(int64(e.Second), 0); isKey && e.Version <= version && at.After(last) {
				last = at
			}
			if isKey && !last.IsZero() &&
				e.Second/keys.BucketSeconds < keys.Seconds(last)/keys.BucketSeconds {
				break // the buckets before are older
			}
		}
		return last, h.db.ReadError(cmp.Or(it.Error(), it.Close()))
	}
	return last, nil
}

// lastBuckets gives what is in the last two buckets with changes up to a time.
func (h Timeline) lastBuckets(cluster string, at time.Time, give func(e *keys.Entry)) error {
	for _, u := range h.db.Units() {
		if u.Cluster() != cluster || u.Resource == "" {
			continue
		}
		prefix := keys.Timeline(u.SourceNumber)
		end := keys.After(prefix)
		if bucket := keys.Seconds(at) / keys.BucketSeconds; !at.IsZero() && bucket < math.MaxUint32 {
			end = keys.AppendBucket(nil, u.SourceNumber, bucket+1)
		}
		it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: end})
		if err != nil {
			return h.db.ReadError(err)
		}
		const buckets = 2
		var current []byte
		seen := 0
		for ok := it.Last(); ok; ok = it.Prev() {
			e, isKey := keys.DecodeEntry(it.Key())
			if !isKey {
				return h.db.ReadError(cmp.Or(it.Close(), record.ErrUnreadable))
			}
			if head := it.Key()[:len(prefix)+4]; !bytes.Equal(head, current) {
				if seen++; seen > buckets {
					break
				}
				current = bytes.Clone(head)
			}
			give(&e)
		}
		return h.db.ReadError(cmp.Or(it.Error(), it.Close()))
	}
	return nil
}
