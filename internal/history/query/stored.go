package query

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/record"
)

// What the writer has to know of what is stored.

// StoredVersion is a version of an object, nil when it is not stored.
func StoredVersion(db Source, o *Object, seq keys.Sequence) (*Version, error) {
	r, err := newReader(db)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.atSequence(o.Unit, o.Namespace, o.Name, seq)
}

// LastBefore is the last version of an object before a time.
func LastBefore(db Source, o *Object, at time.Time) (seq keys.Sequence, found bool, err error) {
	r, err := newReader(db)
	if err != nil {
		return seq, false, err
	}
	defer r.Close()
	return r.lastBefore(o, at)
}

// Rebased is the version at an iterator, which it moves, stored whole instead of as a difference.
func Rebased(it *pebble.Iterator, o *Object, seq keys.Sequence, h record.Header) ([]byte, error) {
	d, err := (&reader{it: it}).decode(seq, h)
	if err != nil {
		return nil, err
	}
	if _, err := versionOf(o.Unit, o.Namespace, o.Name, seq, h, d.text, d.base); err != nil {
		return nil, fmt.Errorf("version %s of %s: %w", seq, o, record.ErrUnreadable)
	}
	return record.AppendRebased(nil, &h, d.base, d.text), nil
}

// Outlasts reports whether a mark of before a time leaves the states from then on uncertain. It
// does where it is a hole that the last list before that time has not healed, and the object that
// it names, if any, has no later version. synced is the end of that list, zero for none.
func Outlasts(db Source, m *Mark, synced, at time.Time) (bool, error) {
	if !m.IsHole() || m.isHealed(synced) {
		return false, nil
	}
	o := m.object()
	if o == nil {
		return true, nil
	}
	seq, found, err := LastBefore(db, o, at)
	if err != nil || !found {
		return true, err
	}
	v, err := StoredVersion(db, o, seq)
	return !m.endsBefore(v), err
}
