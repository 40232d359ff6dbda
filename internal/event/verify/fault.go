package verify

import (
	"cmp"
	"slices"
)

// Kind is what is wrong.
type Kind string

// The kinds of faults.
const (
	Break         Kind = "break"         // a version is missing, as previous says
	Disorder      Kind = "disorder"      // an event comes behind a newer one of its object
	Changed       Kind = "changed"       // the same id came with other data
	Contradiction Kind = "contradiction" // attributes and data of an event are not of one change
	NoAdd         Kind = "no-add"        // a delete of an object that was never added
	NoDelete      Kind = "no-delete"     // another object has the name, and the first was not deleted
	Scattered     Kind = "scattered"     // the events of an object are in several partitions
	// Against a cluster.
	Stale  Kind = "stale"  // the cluster has a newer version
	Absent Kind = "absent" // the cluster has an object that the stream has not
	Extra  Kind = "extra"  // the stream has an object that the cluster has not
)

// Kinds are all of them, in the order in which they are reported.
var Kinds = []Kind{
	Break, NoAdd, NoDelete, Disorder, Changed, Contradiction, Scattered, Stale,
	Absent, Extra,
}

// Fault is one thing that is wrong.
type Fault struct {
	Kind     Kind   `json:"kind"`
	Informer string `json:"informer,omitempty"`
	// Object is its partition key: "deployments.apps/shop/web".
	Object  string `json:"object"`
	Version string `json:"version,omitempty"`
	ID      string `json:"id,omitempty"`
	At      Place  `json:"at,omitzero"`
	What    string `json:"what"`

	unit *unit
	// low is, where versions are missing, the last one before them.
	low uint64
	// late is set on a Disorder whose event was not missing before: with delivery latest a crash
	// makes such.
	late bool
}

// faults are those that do not depend on what is still to come.
type faults struct {
	kept   []Fault
	beyond map[Kind]int // those that were not kept
}

// maxFaults bounds how many are kept.
const maxFaults = 10_000

func (f *faults) add(fault Fault) {
	if len(f.kept) < maxFaults {
		f.kept = append(f.kept, fault)
		return
	}
	if f.beyond == nil {
		f.beyond = map[Kind]int{}
	}
	f.beyond[fault.Kind]++
}

// sorted are faults by lane and place.
func sorted(list []Fault) []Fault {
	slices.SortStableFunc(list, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.At.Lane, b.At.Lane), cmp.Compare(a.At.Offset, b.At.Offset))
	})
	return list
}
