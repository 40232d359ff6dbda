package query

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// Requests are the writes that the API servers' audit logs had. Package audit joins them with the
// versions of objects.
type Requests struct{ db DB }

// RequestSource is the name of a source of requests among all sources.
func RequestSource(cluster, source string) string { return "audit/" + cluster + "\x00" + source }

// Claiming returns the requests of a cluster with a claim.
func (h Requests) Claiming(cluster, claim string) (found [][]byte, err error) {
	it, err := h.db.NewIter(nil) // for both spaces, as of one moment
	if err != nil {
		return nil, h.db.ReadError(err)
	}
	defer it.Close()
	prefix := keys.Claims(cluster, claim)
	var ids []keys.RequestID
	for ok := it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		_, id, isKey := keys.SplitRequest(it.Key())
		if !isKey {
			return nil, h.db.ReadError(record.ErrUnreadable)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		key := keys.Request(cluster, id)
		if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
			return nil, h.db.ReadError(cmp.Or(it.Error(), record.ErrMisfit))
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, h.db.ReadError(err)
		}
		_, data, isRequest := keys.ReadRequest(value)
		if !isRequest {
			return nil, h.db.ReadError(record.ErrUnreadable)
		}
		found = append(found, bytes.Clone(data))
	}
	return found, h.db.ReadError(it.Error())
}

// Sources returns how far each source of a cluster is read, by its name.
func (h Requests) Sources(cluster string) (read map[string]json.RawMessage, err error) {
	prefix := keys.Position(RequestSource(cluster, ""))
	it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	if err != nil {
		return nil, h.db.ReadError(err)
	}
	defer it.Close()
	read = map[string]json.RawMessage{}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, h.db.ReadError(err)
		}
		read[string(it.Key()[len(prefix):])] = bytes.Clone(value)
	}
	return read, h.db.ReadError(it.Error())
}

// ActorOf returns who made a version, as a stream has said from which the history was read; nil for
// nothing.
func (h Requests) ActorOf(v *Version) (r *ActorReport, err error) {
	it, err := h.db.NewIter(nil)
	if err != nil {
		return nil, h.db.ReadError(err)
	}
	defer it.Close()
	key := keys.Actor(v.Unit.Number, keys.Seconds(v.Time), v.Event.Namespace, v.Event.Name, v.seq)
	if !it.SeekGE(key) || !bytes.Equal(it.Key(), key) {
		return nil, h.db.ReadError(it.Error())
	}
	value, err := it.ValueAndErr()
	if err == nil && json.Unmarshal(value, &r) != nil {
		err = record.ErrUnreadable
	}
	return r, h.db.ReadError(err)
}

// HasActors reports whether a stream has said who made versions of a unit.
func (h Requests) HasActors(u *record.Unit) (bool, error) {
	prefix := keys.InUnit(nil, keys.SpaceActor, u.Number)
	it, err := h.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	if err != nil {
		return false, h.db.ReadError(err)
	}
	defer it.Close()
	return it.First(), h.db.ReadError(it.Error())
}
