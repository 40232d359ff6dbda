package soak

import (
	"fmt"
	"hash/maphash"
	"strconv"
)

// Tally compares what a witness saw with what a stream holds, while both grow. It keeps a few bytes
// of each change, so that it can do so for hours. One goroutine uses it.
type Tally struct {
	Witnessed, Stored int // changes, each counted once
	Repeated          int // events that the stream holds twice
	Reordered         int // events behind a later version, or behind the delete, of their object
	Gaps              int // that the stream reports
	Problems          []string

	seed    maphash.Seed
	changes map[uint64]side
	objects map[uint64]uint64 // by uid: the newest version that the stream has
}

// side is who has a change.
type side uint8

const (
	witness side = 1 << iota
	stream
)

const deleted = ^uint64(0) // the version of an object that is gone

// NewTally returns an empty one.
func NewTally() *Tally {
	return &Tally{seed: maphash.MakeSeed(), changes: map[uint64]side{}, objects: map[uint64]uint64{}}
}

// Witness adds a change that the witness saw.
func (t *Tally) Witness(uid, version string, gone bool) {
	if t.note(uid, version, gone, witness) {
		t.Witnessed++
	}
}

// Store adds the next event of the stream.
func (t *Tally) Store(uid, version string, gone bool) {
	if !t.note(uid, version, gone, stream) {
		t.complain(&t.Repeated, "version %s of %s is there twice", version, uid)
		return
	}
	t.Stored++
	number, err := strconv.ParseUint(version, 10, 64)
	if err != nil || gone {
		number = deleted
	}
	object := maphash.String(t.seed, uid)
	if newest := t.objects[object]; newest >= number {
		t.complain(&t.Reordered, "version %s of %s comes behind %d", version, uid, newest)
		return
	}
	t.objects[object] = number
}

// note reports whether this side had not seen the change before. The versions of a delete differ:
// one that a list shows has that of the object before.
func (t *Tally) note(uid, version string, gone bool, by side) (isNew bool) {
	if gone {
		version = "deleted"
	}
	change := maphash.String(t.seed, uid+"/"+version)
	had := t.changes[change]
	t.changes[change] = had | by
	return had&by == 0
}

func (t *Tally) complain(count *int, format string, args ...any) {
	const most = 20
	if *count++; *count <= most {
		t.Problems = append(t.Problems, fmt.Sprintf(format, args...))
	}
}

// Missing counts the changes that the witness saw and the stream does not have.
func (t *Tally) Missing() int { return t.only(witness) }

// Foreign counts the changes that the stream has and the witness did not see.
func (t *Tally) Foreign() int { return t.only(stream) }

func (t *Tally) only(by side) (n int) {
	for _, had := range t.changes {
		if had == by {
			n++
		}
	}
	return n
}

// String is the tally as a line of a report.
func (t *Tally) String() string {
	return fmt.Sprintf("%d changes, %d stored: %d missing, %d that no witness saw, %d twice, %d in a wrong order, %d gaps",
		t.Witnessed, t.Stored, t.Missing(), t.Foreign(), t.Repeated, t.Reordered, t.Gaps)
}
