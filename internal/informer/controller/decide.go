package controller

import (
	"slices"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// KnownState is what is known of the object that a delta is about.
type KnownState struct {
	Record store.Record
	Found  bool // Record is there; it may be a tombstone
	// Left are objects of this name that an earlier run has announced and this one has not met, the
	// oldest first.
	Left []store.Record
	// DeleteAnnounced is set when an earlier run may have sent a Deleted of the object of Record.
	DeleteAnnounced bool
	// Changed is set for a Sync whose object has changed since it was queued.
	Changed bool
	// Outside is set when the namespace of the object is not selected.
	Outside bool
}

func (k *KnownState) alive() bool { return k.Found && !k.Record.Deleted }

// List is what surrounds a delta: the list that it is part of, and what is selected.
type List struct {
	resource.Relist // zero between lists
	// Unclean is set when an earlier run may have sent states that are not known.
	Unclean bool
	// Round of a first list that publishes every object; 0 for only what changed.
	Round int64
	// Selective, Leavable and Enterable are those of Config.
	Selective, Leavable, Enterable bool
}

// StateOrigin is where the last state of an object is found.
type StateOrigin uint8

const (
	// FromDelta: in the delta.
	FromDelta StateOrigin = iota
	// FromState: it is the newest known state. Of a Deleted it may be an earlier one than the last
	// (store.DB.SetBodiesPerSecond); a Synced must be exactly of its version.
	FromState
	// FromAnnouncement: it is the state in which an earlier run has announced the object.
	FromAnnouncement
)

// Decision is one change that follows from a delta.
type Decision struct {
	event.Change
	// Origin is where the Object is found. The Object is set already when it has come with the
	// delta.
	Origin StateOrigin
	// DeltaVersion is the version of the delta, where that is not the change's own. OfList is set
	// when it has none: only the list's end says as of which version it is.
	DeltaVersion resource.Version
	OfList       bool
	// Forget is set when nothing is to be remembered of the object: its namespace has left the
	// selection, and the object may come again as it was.
	Forget bool
	// Written is what to remember of the managedFields.
	Written resource.Written
}

// Decide appends to buf the changes that follow from a delta, in their order. It is the table in
// docs/design.md.
func Decide(buf []Decision, d *deltafifo.Delta, k *KnownState, l *List) []Decision {
	x := decider{Delta: d, known: k, list: l, out: buf}
	switch d.Type {
	case deltafifo.Added, deltafifo.Updated:
		if !k.Found || !covers(k.Record, d.Object.Version) {
			x.decideWatched()
		}
	case deltafifo.Replaced:
		x.decideReplaced()
	case deltafifo.Deleted:
		if d.FinalStateUnknown {
			x.decideMissing()
		} else {
			x.decideDeleted()
		}
	case deltafifo.Unselected:
		x.decideUnselected()
	case deltafifo.Skipped:
		x.decideSkipped()
	case deltafifo.Sync:
		x.decideSync()
	default: // a mark
	}
	return x.out
}

// decider is one call of Decide.
type decider struct {
	*deltafifo.Delta
	known *KnownState
	list  *List
	out   []Decision
}

func (x *decider) add(c Decision) {
	c.Key = x.Key
	if version := x.deltaVersion(); c.Op != event.Synced && version != c.Version {
		c.DeltaVersion, c.OfList = version, version == ""
	}
	x.out = append(x.out, c)
}

func (x *decider) deltaVersion() resource.Version {
	switch {
	case x.Object != nil:
		return x.Object.Version
	case x.Skipped != nil:
		return x.Skipped.Version
	}
	return x.Version
}

// change begins a decision with the object of the delta.
func (x *decider) change(op event.Op) Decision {
	obj := x.Object
	return Decision{Change: event.Change{Op: op, Object: obj, UID: obj.UID, Version: obj.Version}}
}

// covers reports whether the known state of an object includes a version of it.
func covers(known store.Record, version resource.Version) bool {
	return version == known.Version || version.NotNewer(known.Version)
}

// decideExisting decides an object that exists and was not known in this version: Added, or
// Updated, or the delete of another object of that name and then Added.
func (x *decider) decideExisting(alive bool) {
	known := x.known.Record
	if alive && known.UID != x.Object.UID {
		x.addDelete(known, FromState, x.beforeThis(), x.causeOfEnd())
		alive = false
	}
	c := x.change(event.Added)
	if alive {
		c.Op, c.Before = event.Updated, known.Version
	} else {
		c.Cause = x.causeOfAdd()
	}
	if x.Type == deltafifo.Replaced {
		c.Initial = x.list.Initial()
		c.Inferred = !x.list.Initial() && !x.list.Partial()
	}
	x.add(c)
}

// decideWatched decides an object that the watch reports.
func (x *decider) decideWatched() {
	if before := x.unmetBefore(); len(before) > 0 {
		x.decideSuccessor(before)
	} else {
		x.decideExisting(x.known.alive())
	}
}

// decideReplaced decides an item of a list.
func (x *decider) decideReplaced() {
	if before := x.leftBefore(x.Object.UID, x.Object.Version); len(before) > 0 {
		x.decideSuccessor(before)
	} else if x.returns() {
		x.decideExisting(false)
	} else if x.unchanged() {
		x.decideCovered()
	} else {
		x.decideExisting(x.known.alive())
	}
}

// returns reports whether a Deleted of this item of a list may have been sent: another selector had
// made the object leave, in the known version, and that was not settled.
func (x *decider) returns() bool {
	known := &x.known.Record
	return x.known.DeleteAnnounced && x.known.alive() && known.UID == x.Object.UID &&
		!known.Version.Newer(x.Object.Version)
}

// unchanged reports whether an item of a list has nothing new. After a rewind only an equal version
// proves that, and nothing does while it is not known what was sent.
func (x *decider) unchanged() bool {
	known := &x.known.Record
	switch {
	case !x.known.Found:
		return false
	case x.list.Rewound():
		isEqual := known.UID == x.Object.UID && known.Version == x.Object.Version
		return isEqual && !known.Deleted && !x.list.Unclean
	}
	return covers(*known, x.Object.Version)
}

// decideCovered decides an item of a list that is known already. It is published when the first
// list publishes every object, in the known state: the list may be from an API server that is
// behind.
func (x *decider) decideCovered() {
	if x.list.Round == 0 || !x.list.Initial() || !x.known.alive() {
		return
	}
	known := &x.known.Record
	c := Decision{Origin: FromState, Change: event.Change{
		Op: event.Synced, UID: known.UID, Version: known.Version, Initial: true, Round: x.list.Round,
	}}
	if x.Object.Version == known.Version {
		c.Origin, c.Object = FromDelta, x.Object
	}
	x.add(c)
}

// decideSuccessor decides an object that exists where others were announced under its name that are
// gone. Consumers that were sent their Added have dropped the object before, so this one comes as
// new.
func (x *decider) decideSuccessor(before []store.Record) {
	known := &x.known.Record
	asOf := x.beforeThis()
	// One that is still there has not died, whatever its name saw. After a rewind it may have, and
	// lives again: then its Added says so, since its id for a delete is for the day it dies.
	if x.known.alive() && known.UID != x.Object.UID {
		before = slices.DeleteFunc(before, func(r store.Record) bool {
			return r.UID == known.UID // it had come again
		})
		x.addDelete(*known, FromState, x.beforeNext(before, asOf), x.causeOfEnd())
	}
	x.addLeftDeletes(before, asOf, x.causeOfEnd())
	x.decideExisting(false)
}

// decideSync decides a resync or a snapshot of an object. A change that was decided since is newer:
// only a snapshot comes behind it.
func (x *decider) decideSync() {
	if known := &x.known.Record; x.known.alive() && (x.Snapshot || !x.known.Changed) {
		x.add(Decision{Origin: FromState, Change: event.Change{
			Op: event.Synced, UID: known.UID, Version: known.Version, Initial: x.Snapshot,
			Round: x.Round,
		}})
	}
}

// decideDeleted decides a delete that the API server reports.
func (x *decider) decideDeleted() {
	if x.known.Found && coversDelete(x.known.Record, x.Object) {
		return
	}
	c := x.change(event.Deleted)
	c.Cause = x.causeOfDelete()
	before, asOf := x.unmetBefore(), x.beforeThis()
	if known := x.known.Record; x.known.alive() && known.UID == x.Object.UID {
		c.Before = known.Version
	} else if x.known.alive() {
		x.addDelete(known, FromState, x.beforeNext(before, asOf), x.causeOfEnd())
	}
	x.addLeftDeletes(before, asOf, x.causeOfEnd())
	x.add(c)
}

// coversDelete reports whether the known state of an object includes its deletion. An aggregated
// API server may give the delete the version of the last state: so only a later state of the same
// object shows that it lived on.
func coversDelete(known store.Record, last *resource.Object) bool {
	if !known.Deleted && known.UID == last.UID {
		return known.Version.Newer(last.Version)
	}
	return covers(known, last.Version)
}

// decideMissing decides an object that a list does not hold.
func (x *decider) decideMissing() {
	cause, before := x.causeOfMissing(), x.leftBefore("", x.Version)
	if x.known.alive() {
		x.addDelete(x.known.Record, FromState, x.beforeNext(before, x.Version), cause)
	}
	x.addLeftDeletes(before, x.Version, cause)
}

// decideSkipped decides an item of a list that can't be understood: its object exists in an unknown
// state, and other objects of its name are gone.
func (x *decider) decideSkipped() {
	of := x.Skipped
	if of.Key == "" || of.UID == "" {
		return
	}
	if known := x.known.Record; x.known.alive() && known.UID != of.UID {
		x.addDelete(known, FromState, x.beforeThis(), x.causeOfEnd())
	}
	x.addLeftDeletes(x.leftBefore(of.UID, of.Version), x.beforeThis(), x.causeOfEnd())
}

// decideUnselected decides an object that is not selected. A selected one has left, unless it is
// gone, or another has its name. An unknown object was never reported, and is not reported.
func (x *decider) decideUnselected() {
	if x.known.alive() {
		if outdated(x.Delta, x.known, x.list) {
			return
		}
		x.addLeaving(x.known.Record, FromState)
	}
	for _, was := range x.leftBefore("", x.Object.Version) {
		x.addLeaving(was, FromAnnouncement)
	}
}

// outdated reports whether the known state is newer than an Unselected. In a list the versions may
// be equal: the selection has changed.
func outdated(d *deltafifo.Delta, k *KnownState, l *List) bool {
	if !d.Listed {
		return covers(k.Record, d.Object.Version)
	}
	return !l.Rewound() && k.Record.Version.Newer(d.Object.Version)
}

// addLeaving decides an object that was selected and is not any more, as the API server does where
// it selects. The event has the version with which the object left, if the object is still the
// same.
func (x *decider) addLeaving(was store.Record, last StateOrigin) {
	if was.UID != x.Object.UID {
		x.addDelete(was, last, x.beforeThis(), event.CauseDeleted)
		return
	}
	c := Decision{Origin: last, Change: event.Change{
		Op: event.Deleted, UID: was.UID, Version: x.Object.Version, Before: was.Version,
		Inferred: x.Listed && !x.Gone && !x.list.Partial(), Cause: event.CauseLeft,
		Left: x.Object.Version,
	}}
	if x.Gone {
		c.Cause, c.Left = event.CauseDeleted, ""
	}
	x.add(c)
}

// addDelete decides the inferred delete of an object. Its tombstone and its sequence have the
// version as of which the object is gone; its resourceversion is that of the last known state.
// Before a crash the object may have been sent in a later version, but in none as late as a list
// that lacks it, or as the first version of another object of its name. After a rewind no version
// from before counts.
func (x *decider) addDelete(was store.Record, last StateOrigin, asOf resource.Version, cause string) {
	if asOf == "" || !x.list.Rewound() && !asOf.Newer(was.Version) {
		asOf = was.Version
	}
	c := Decision{Origin: last, Change: event.Change{
		Op: event.Deleted, UID: was.UID, Version: was.Version, Before: was.Version, Inferred: true,
		Cause: cause, GoneAsOf: asOf,
	}}
	if cause == event.CauseLeft || x.list.Leaves() {
		c.Forget = x.known.Outside
	}
	if cause == event.CauseLeft {
		c.Inferred = !x.list.Partial()
	}
	x.add(c)
}

// addLeftDeletes decides the inferred deletes of objects that were announced and never settled.
// asOf is that of the last of them.
func (x *decider) addLeftDeletes(left []store.Record, asOf resource.Version, cause string) {
	for i, was := range left {
		x.addDelete(was, FromAnnouncement, x.beforeNext(left[i+1:], asOf), cause)
	}
}

// beforeThis returns the version as of which another object of this name was gone: the one before
// the first known version of the delta's object.
func (x *decider) beforeThis() resource.Version {
	first, uid := x.deltaVersion(), ""
	switch {
	case x.Object != nil:
		uid = x.Object.UID
	case x.Skipped != nil:
		uid = x.Skipped.UID
	}
	for _, was := range x.known.Left {
		if was.UID == uid && !x.list.Rewound() && first.Newer(was.Version) {
			first = was.Version
		}
	}
	return first.Before()
}

// beforeNext returns the version as of which an object was gone that others have followed under its
// name: the one before the first of these, or asOf without any.
func (x *decider) beforeNext(next []store.Record, asOf resource.Version) resource.Version {
	if len(next) == 0 || x.list.Rewound() {
		return asOf
	}
	return next[0].Version.Before()
}

// leftBefore returns the objects that an earlier run has announced under this name, and that must
// be gone as of a version at which the name is free, or another's (uid). The watch will report
// later ones.
func (x *decider) leftBefore(uid string, version resource.Version) (before []store.Record) {
	for _, was := range x.known.Left {
		if was.UID != uid && (x.list.Rewound() || x.list.Leaves() || !was.Version.Newer(version)) {
			before = append(before, was)
		}
	}
	return before
}

// unmetBefore returns the objects that an earlier run has announced under the name of a watch
// event's object, in earlier versions. The watch begins before all announcements. So it has
// reported what became of these objects, in events that could not be read.
func (x *decider) unmetBefore() (before []store.Record) {
	for _, was := range x.known.Left {
		if was.UID != x.Object.UID && x.Object.Version.Newer(was.Version) {
			before = append(before, was)
		}
	}
	return before
}

// causeOfAdd returns the cause of the Added of an unknown object. Where the API server selects, it
// reports an object that enters the selection as a new one.
func (x *decider) causeOfAdd() string {
	selectsHere := x.list.Selective && !x.list.Leavable
	switch {
	case selectsHere && x.Type == deltafifo.Added:
		return event.CauseCreated
	case selectsHere && x.Type == deltafifo.Replaced && x.list.Partial(),
		selectsHere && x.Type == deltafifo.Updated && x.list.Enterable:
		return event.CauseEntered
	case x.list.Leavable && x.Type == deltafifo.Added, x.Type == deltafifo.Updated:
		return event.CauseUnknown
	}
	return ""
}

// causeOfMissing returns the cause of the delete of an object that a list does not hold. With its
// namespace it has died: a namespace is empty when it goes.
func (x *decider) causeOfMissing() string {
	switch {
	case !x.known.Outside:
		return x.causeOfDelete()
	case x.list.Kind == resource.RelistDeleted:
		return event.CauseDeleted
	default:
		return event.CauseLeft
	}
}

// causeOfDelete returns the cause of a delete that the API server reports, or a list shows.
func (x *decider) causeOfDelete() string {
	switch {
	case !x.list.Selective:
		return ""
	case x.list.Leavable:
		return event.CauseUnknown
	}
	return event.CauseDeleted
}

// causeOfEnd returns the cause of an object's delete when another has its name: it has surely died.
func (x *decider) causeOfEnd() string {
	if !x.list.Selective {
		return ""
	}
	return event.CauseDeleted
}
