package store

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Settle writes an object's last settled state.
func (b *Batch) Settle(ix *Indexer, key resource.Key, s Settled) {
	bodyInPlace := b.dropAnnounced(ix, key, &s)
	b.value = s.Record.append(b.value[:0])
	var k cacheLookup
	if !s.Deleted {
		b.put(b.keyOf(spaceRecord, ix, key), b.value)
		leaves := !bodyInPlace && b.leavesBody(ix, key, &k, &s)
		if !bodyInPlace && !leaves {
			b.body = ix.db.bodies.encode(b.body, s.Object.Raw)
			b.put(b.keyOf(spaceBody, ix, key), b.body)
		}
		b.setStale(ix, key, &k, leaves)
		return
	}
	b.setStale(ix, key, &k, false)
	b.Fail(b.batch.Delete(b.keyOf(spaceBody, ix, key), nil))
	if !s.Version.Ordered() {
		// Without an order no watermark ever passes it, and a replay can't be distinguished from a
		// change: keep nothing.
		b.Fail(b.batch.Delete(b.keyOf(spaceRecord, ix, key), nil))
		return
	}
	b.put(b.keyOf(spaceRecord, ix, key), b.value)
	b.put(tombstoneKey(ix.id, s.Version, key), nil)
}

// Stored is the last settled state of one object: all sinks have it, or it is spooled for them.
type Stored struct {
	Record
	// Body is the JSON as it was sent: without what was removed, and redacted. Nil when deleted. It
	// may be that of an earlier version, which it names (DB.SetBodiesPerSecond).
	Body []byte
	// BodyBytes is what the body takes in the database, compressed.
	BodyBytes int
}

// Stored reads the last settled state of an object, without unsettled changes. Found is false when
// it is not known: it never existed, or its tombstone is gone. With an error about the body, the
// record is still right. It may be called at any time, also while the Indexer is written.
func (ix *Indexer) Stored(key resource.Key) (s Stored, found bool, err error) {
	// Record and body as one commit left them.
	snapshot := ix.db.pebble.NewSnapshot()
	defer snapshot.Close()
	record, err := getFrom(snapshot, objectKey(spaceRecord, ix.id, key))
	if err != nil || record == nil {
		return s, false, ix.db.state.ReadError(err)
	}
	if s.Record, err = parseRecord(record); err != nil {
		return s, false, ix.db.state.ReadError(err)
	}
	if s.Deleted {
		return s, true, nil
	}
	body, err := getFrom(snapshot, objectKey(spaceBody, ix.id, key))
	switch {
	case err != nil:
		return s, true, ix.db.state.ReadError(err)
	case body == nil:
		return s, true, errors.New("state database: the body is not there")
	}
	s.BodyBytes = len(body)
	s.Body, err = ix.db.bodies.decode(body)
	return s, true, err
}

// getFrom returns a copy of a value, nil when there is none.
func getFrom(from pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, statedb.Wrap(err)
	}
	value = append([]byte{}, value...)
	return value, closer.Close()
}
