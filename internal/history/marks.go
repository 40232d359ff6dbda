package history

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
)

// removeMarks removes the marks of a unit before a time, but for those that say something of the
// state at the time: the end of the last list, and holes that it has not healed.
func (m Maintenance) removeMarks(u *record.Unit, second uint32) error {
	if u.Source == record.ArchiveSource {
		return nil // they are few, and may reach over the time
	}
	marks := keys.InUnit(nil, keys.SpaceMark, u.Number)
	end := binary.BigEndian.AppendUint32(bytes.Clone(marks), second)
	kept, err := m.lastMarks(u, marks, end)
	if err != nil {
		return err
	}
	b := m.db.pebble.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(marks, end, nil); err != nil {
		return err
	}
	for scope, last := range kept {
		if scope.op != event.Synced {
			var synced time.Time
			list, isListed := kept[markScope{op: event.Synced, namespace: scope.namespace}]
			if isListed {
				synced = list.Time
			}
			outlasts, err := query.Outlasts(m.db, last.Mark, synced, time.Unix(int64(second), 0))
			if err != nil {
				return err
			}
			if !outlasts {
				continue
			}
		}
		if err := b.Set(last.key, last.value, nil); err != nil {
			return err
		}
	}
	return b.Commit(pebble.NoSync)
}

// markScope is what marks have in common of which the last one says all: a state is uncertain since
// then, or complete.
type markScope struct {
	op                      event.Op
	kind, reason, namespace string
	object                  string // of which a version could not be parsed
}

type storedMark struct {
	*query.Mark
	key, value []byte
}

// lastMarks are the last marks of each scope before a key.
func (m Maintenance) lastMarks(
	u *record.Unit, from, to []byte,
) (map[markScope]storedMark, error) {
	it, err := m.db.pebble.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	last := map[markScope]storedMark{}
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		mark, err := query.ReadMark(u, value)
		if err != nil {
			return nil, err
		}
		e := &mark.Event
		scope := markScope{op: e.Op, namespace: e.Namespace}
		switch e.Op {
		case event.Synced: // of each namespace with lists of its own
		case event.Quarantined:
			scope.object = e.PartitionKey
		default:
			scope.kind, scope.reason = e.Type, mark.Reason
		}
		last[scope] = storedMark{mark, bytes.Clone(it.Key()), bytes.Clone(value)}
	}
	return last, it.Error()
}
