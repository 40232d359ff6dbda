package query

import (
	"bytes"
	"encoding/binary"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
)

// order finds out where the order of time is not that of a name's versions, which is what happened.
// The example is at lastBefore: there v49 is Overtaken, and v50 has it as Ended.
func (r *reader) order(s *Step, o *Object) (err error) {
	prefix := o.prefix()
	era := binary.BigEndian.AppendUint32(bytes.Clone(prefix), s.seq.Era)
	key := s.seq.Append(bytes.Clone(prefix))
	if s.Overtaken, err = r.isOvertaken(s, era, key); err != nil || s.Overtaken {
		return err
	}
	if s.Before != nil || s.Deleted() || !r.it.SeekLT(key) || !bytes.HasPrefix(r.it.Key(), era) {
		return r.it.Error()
	}
	end, ok := keys.DecodeSequence(r.it.Key()[len(prefix):])
	observed, err := r.time()
	if err != nil || !ok || !end.Deleted || !observed.After(s.Time) {
		return err
	}
	// What a reader in the order of time has of the name. It may be an object before the one that
	// ended: several may have come and gone in one backlog.
	seq, found, err := r.lastBefore(o, s.Time)
	if err != nil || !found || seq.Deleted {
		return err
	}
	if s.Last, err = r.atSequence(o.Unit, o.Namespace, o.Name, seq); err != nil || s.Last == nil {
		return err
	}
	s.Ended, err = r.atSequence(o.Unit, o.Namespace, o.Name, end)
	return err
}

// isOvertaken reports whether a higher version in the era has an earlier time. A time from
// managedFields is when the change was made, so nothing that followed is earlier.
func (r *reader) isOvertaken(s *Step, era, key []byte) (bool, error) {
	if s.Event.TimeSource == event.TimeManagedFields || !r.it.SeekGE(key) {
		return false, r.it.Error()
	}
	for r.it.Next() && bytes.HasPrefix(r.it.Key(), era) {
		t, err := r.time()
		if err != nil || t.Before(s.Time) {
			return err == nil, err
		}
		if t.After(s.Time.Add(catchUp)) {
			return false, nil
		}
	}
	return false, r.it.Error()
}
