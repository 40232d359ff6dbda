package query

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Cursor is the place of an entry in a timeline.
type Cursor struct{ entry keys.Entry }

// String returns the cursor for ParseCursor.
func (c *Cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(c.entry.Append(nil))
}

// errCursor is about a cursor that no answer had.
var errCursor = errors.New("want the cursor of an answer, as it was")

// ParseCursor reads a cursor of an earlier answer; nil for "".
func ParseCursor(text string) (*Cursor, error) {
	if text == "" {
		return nil, nil
	}
	key, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, errCursor)
	}
	entry, ok := keys.DecodeEntry(key)
	if !ok || !bytes.Equal(entry.Append(nil), key) {
		return nil, fmt.Errorf("%q: %w", text, errCursor)
	}
	return &Cursor{entry}, nil
}

// NewestFirst returns the same as Entries, the newest first: in the reverse order. With a cursor it
// returns what is before that: the cursor of the last entry of an answer continues it.
func (h Timeline) NewestFirst(
	cluster, namespace string, since, until time.Time, before *Cursor,
	wanted func(u *record.Unit) bool,
) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		t := newTimelineWalk(h.db, cluster, namespace, since, until, wanted)
		if t.isReversed = true; before != nil {
			t.behind = &before.entry
			t.until = min(t.until, before.entry.Second)
		}
		t.yield = t.yieldEntries(yield)
		if err := t.run(); err != nil {
			yield(nil, h.db.ReadError(err))
		}
	}
}

// runReversed visits buckets from the last one to the first.
func (t *timelineWalk) runReversed() error {
	prefix := keys.Timeline(t.source)
	end := keys.After(prefix)
	if last := t.until / keys.BucketSeconds; last < (1<<32-1)/keys.BucketSeconds {
		end = keys.AppendBucket(nil, t.source, last+1)
	}
	for t.it.SeekLT(end) {
		bucket := binary.BigEndian.Uint32(t.it.Key()[len(prefix):])
		if bucket < t.since/keys.BucketSeconds {
			return nil
		}
		hasMore, err := t.bucketReversed(bucket)
		if err != nil || !hasMore {
			return err
		}
		end = keys.AppendBucket(nil, t.source, bucket)
	}
	return t.it.Error()
}

// bucketReversed yields what is in a bucket. It reports whether to continue.
func (t *timelineWalk) bucketReversed(bucket uint32) (bool, error) {
	prefix := keys.AppendBucket(nil, t.source, bucket)
	if t.namespace == "*" {
		return t.pieces(prefix)
	}
	prefix = keys.AppendName(prefix, t.namespace)
	for ok := t.it.SeekLT(keys.After(prefix)); ok && bytes.HasPrefix(t.it.Key(), prefix); ok = t.it.Prev() {
		e, isKey := keys.DecodeEntry(t.it.Key())
		value, err := t.it.ValueAndErr()
		if err != nil || !isKey {
			return false, cmp.Or(err, record.ErrUnreadable)
		}
		if e.Second < t.since {
			break
		}
		if hasMore, err := t.give(&e, value); err != nil || !hasMore {
			return false, err
		}
	}
	return true, t.it.Error()
}

// pieces yields a bucket of all namespaces: sorted in pieces, so that memory does not follow what
// happened.
func (t *timelineWalk) pieces(prefix []byte) (bool, error) {
	var last keys.Entry
	for first := true; ; first = false {
		piece, more, err := t.piece(prefix, last, first)
		if err != nil {
			return false, err
		}
		for i := range piece {
			if hasMore, err := t.give(&piece[i].Entry, piece[i].value); err != nil || !hasMore {
				return false, err
			}
		}
		if !more {
			return true, nil
		}
		last = piece[len(piece)-1].Entry
	}
}

// compare is the order of the walk.
func (t *timelineWalk) compare(a, b *keys.Entry) int {
	if t.isReversed {
		a, b = b, a
	}
	return a.Compare(b)
}

func (t *timelineWalk) sort(piece []timelineItem) {
	slices.SortFunc(piece, func(a, b timelineItem) int { return t.compare(&a.Entry, &b.Entry) })
}
