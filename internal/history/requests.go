package history

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Requests stores the writes that the API servers' audit logs have, for package audit. Several
// goroutines may use it.
type Requests struct{ db *database }

// Request is a write in an audit log.
type Request struct {
	Ended time.Time
	// Claims are the keys under which a version finds it.
	Claims []string
	// Data is what is kept of it. Two requests with the same data are one.
	Data []byte
}

// Append stores requests of a cluster, and how far their source is read: both or neither. Durable
// when it returns nil. When ctx ends while the disk does not answer, nothing is known: store them
// again.
func (r Requests) Append(
	ctx context.Context, cluster, source string, requests []Request, read json.RawMessage,
) error {
	b := r.db.pebble.NewBatch()
	for i := range requests {
		if err := setRequest(b, cluster, &requests[i]); err != nil {
			return cmp.Or(err, b.Close())
		}
	}
	if err := b.Set(keys.Position(query.RequestSource(cluster, source)), read, nil); err != nil {
		return cmp.Or(err, b.Close())
	}
	return r.db.commit(ctx, b)
}

// commit commits a batch, durably. When ctx ends while the disk does not answer, nothing is known.
func (db *database) commit(ctx context.Context, b *pebble.Batch) error {
	done := make(chan error, 1)
	db.commits.Go(func() { done <- cmp.Or(b.Commit(db.sync), b.Close()) })
	select {
	case err := <-done:
		return db.ReadError(err)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-db.failed:
		return db.err
	}
}

func setRequest(b *pebble.Batch, cluster string, r *Request) error {
	id := keys.RequestID{Second: keys.Seconds(r.Ended)}
	sum := sha256.Sum256(r.Data)
	copy(id.Hash[:], sum[:])
	for _, claim := range r.Claims {
		if err := b.Set(id.Append(keys.Claims(cluster, claim)), nil, nil); err != nil {
			return err
		}
	}
	return b.Set(keys.Request(cluster, id), keys.AppendRequest(nil, r.Claims, r.Data), nil)
}

// Sources returns how far each source of a cluster is read, by its name.
func (r Requests) Sources(cluster string) (read map[string]json.RawMessage, err error) {
	return query.New(r.db).Requests.Sources(cluster)
}

// check reads all requests, and looks for each under its claims.
func (r Requests) check(ctx context.Context) error {
	it, err := r.db.pebble.NewIter(nil) // of all that belongs together, as of one moment
	if err != nil {
		return err
	}
	defer it.Close()
	next := []byte{keys.SpaceRequest}
	for it.SeekGE(next) && it.Key()[0] == keys.SpaceRequest && ctx.Err() == nil {
		next = append(bytes.Clone(it.Key()), 0)
		head, id, isKey := keys.SplitRequest(it.Key())
		value, err := it.ValueAndErr()
		if err != nil || !isKey {
			return cmp.Or(err, record.ErrUnreadable)
		}
		cluster, _, _ := keys.CutName(head[1:])
		claims, _, isRequest := keys.ReadRequest(value)
		if !isRequest {
			return record.ErrUnreadable
		}
		for _, claim := range claims {
			key := id.Append(keys.Claims(cluster, claim))
			if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
				return cmp.Or(it.Error(), record.ErrMisfit)
			}
		}
	}
	return cmp.Or(it.Error(), context.Cause(ctx))
}

// removeActors removes who made versions before a time, of units of which a stream has said it.
func (m Maintenance) removeActors(second uint32) error {
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: []byte{keys.SpaceActor}, UpperBound: []byte{keys.SpaceActor + 1},
	})
	if err != nil {
		return err
	}
	defer it.Close()
	for _, u := range m.db.units.all() {
		from, to := keys.Actors(u.Number, 0), keys.Actors(u.Number, second)
		if !it.SeekGE(from) || bytes.Compare(it.Key(), to) >= 0 {
			continue
		}
		if err := m.db.pebble.DeleteRange(from, to, pebble.NoSync); err != nil {
			return err
		}
	}
	return it.Error()
}

// removeRequests removes the requests of all clusters that ended before a time.
func (m Maintenance) removeRequests(ctx context.Context, second uint32) error {
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{
		LowerBound: []byte{keys.SpaceRequest}, UpperBound: []byte{keys.SpaceRequest + 1},
	})
	if err != nil {
		return err
	}
	defer it.Close()
	b := m.db.pebble.NewBatch()
	defer func() { _ = b.Close() }() // it gives back memory
	for ok := it.First(); ok && ctx.Err() == nil; {
		head, id, isKey := keys.SplitRequest(it.Key())
		if !isKey {
			return record.ErrUnreadable
		}
		if id.Second >= second {
			ok = it.SeekGE(keys.After(head)) // of the next cluster
			continue
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		cluster, _, _ := keys.CutName(head[1:])
		claims, _, isRequest := keys.ReadRequest(value)
		if !isRequest {
			return record.ErrUnreadable
		}
		for _, claim := range claims {
			if err := b.Delete(id.Append(keys.Claims(cluster, claim)), nil); err != nil {
				return err
			}
		}
		if err := b.Delete(it.Key(), nil); err != nil {
			return err
		}
		if b, err = m.commitFull(b); err != nil {
			return err
		}
		ok = it.Next()
	}
	return cmp.Or(context.Cause(ctx), it.Error(), b.Commit(pebble.NoSync))
}
