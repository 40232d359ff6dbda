package crash

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// Findings are what a sink holds, measured against what witnesses saw.
type Findings struct {
	Witnessed  int // changes that witnesses saw, each counted once
	Events     int // about objects, each counted once
	Lost       int // changes that are missing, though no gap covers them
	Reordered  int // events of an object in a wrong order
	Duplicates int // events that were there before
	Altered    int // of those, with another payload, though no relist repeated them
	Renamed    int // changes that came again under another id, so that nobody can know that it is one
	Ghosts     int // objects that are gone, but whose last event is no deleted
	// Unreported are objects that are gone, without a deleted, whose events all lie in a gap that
	// was reported: the bridge was killed before it knew on disk that it had sent them, and a gap
	// says that what was created and deleted in it can't be known.
	Unreported int
	Stale      int // objects whose last event is not their state
	Gaps       int // gap events
	InGaps     int // changes that are missing, and a gap covers them
	PastTo     int // of those, after the version to which the gap reaches by its own word, before the list that healed it

	Problems []string // one for each of Lost, Reordered, Altered, Renamed, Ghosts and Stale
	Silent   []string // one for each of Unreported
	// Backwards are events with a time before that of an earlier one of their object and epoch. It
	// is wrong of one bridge. Two replicas observe changes with two clocks, and with a lag each.
	Backwards []string
}

// String is the findings as a line of a report.
func (v *Findings) String() string {
	return fmt.Sprintf("events %d, lost %d, reordered %d, duplicates %d, altered %d, renamed %d, ghosts %d, unreported in gaps %d, stale %d, gaps %d (missing in them %d, of these past their end %d)",
		v.Events, v.Lost, v.Reordered, v.Duplicates, v.Altered, v.Renamed, v.Ghosts, v.Unreported, v.Stale, v.Gaps, v.InGaps, v.PastTo)
}

func (v *Findings) complain(count *int, format string, args ...any) {
	*count++
	v.Problems = append(v.Problems, fmt.Sprintf(format, args...))
}

// Judge compares. The changes are those that witnesses saw, who may have missed some; exist are the
// objects that exist at the end.
func Judge(changes, exist []truth.Change, events []read.Event) (*Findings, error) {
	v := &Findings{}
	missing, reported, err := gaps(events)
	if err != nil {
		return nil, err
	}
	v.Gaps = reported
	first := v.firsts(events)
	v.Events = len(first)
	byID := map[string]*read.Event{}
	for i := range first {
		byID[first[i].ID()] = &first[i]
	}
	if err := v.order(first, byID); err != nil {
		return nil, err
	}
	if err := v.lost(changes, byID, missing); err != nil {
		return nil, err
	}
	v.times(first)
	unreported := v.ghosts(first, exist, byID, missing)
	v.stale(exist, without(first, unreported), "once duplicates are dropped")
	v.stale(exist, without(events, unreported), "with duplicates")
	return v, nil
}

// firsts drops what comes again, as a consumer does by the ids.
func (v *Findings) firsts(events []read.Event) (first []read.Event) {
	seen, names := map[string]*read.Event{}, map[string]string{}
	for i := range events {
		e := &events[i]
		before := seen[e.ID()]
		switch {
		case !e.AboutObject():
		case before == nil:
			seen[e.ID()] = e
			if id := names[changeOf(e)]; id != "" {
				v.complain(&v.Renamed, "%s was there as %s", Describe(e), id)
			}
			names[changeOf(e)] = e.ID()
			first = append(first, *e)
		default:
			v.Duplicates++
			// A relist after a crash knows only the state of before; that a deleted object looks
			// older in its words is its right.
			if repeated := e.Attribute("inferred") == "true" || before.Attribute("inferred") == "true"; !repeated && !bytes.Equal(e.Data(), before.Data()) {
				v.complain(&v.Altered, "%s comes again with another payload", Describe(e))
			}
		}
	}
	return first
}

// changeOf is which change an event reports, whatever its id is.
func changeOf(e *read.Event) string {
	if e.Op() == "deleted" {
		return e.Attribute("uid") + " deleted"
	}
	return e.Attribute("uid") + " " + e.Attribute("resourceversion")
}

// life is how far the events of one key are.
type life struct {
	uid     string
	version uint64
	deleted bool
	lane    string
	dead    map[string]bool // uids
}

// order checks each object by its name: versions of a uid ascend, nothing of it comes after its
// delete, and another object of the name comes after the delete of the one before.
func (v *Findings) order(first []read.Event, byID map[string]*read.Event) error {
	lives := map[string]*life{}
	for i := range first {
		e := &first[i]
		key, uid := e.Attribute("partitionkey"), e.Attribute("uid")
		version, err := number(e.Attribute("resourceversion"))
		if err != nil {
			return fmt.Errorf("%s: %w", Describe(e), err)
		}
		if lives[key] == nil {
			lives[key] = &life{uid: uid, lane: e.Lane, dead: map[string]bool{}}
		}
		l, deleted := lives[key], e.Op() == "deleted"
		switch {
		case e.Lane != l.lane:
			v.complain(&v.Reordered, "%s: others of the object are in %s", Describe(e), l.lane)
		case l.dead[uid]:
			v.complain(&v.Reordered, "%s comes after the object's delete", Describe(e))
			continue // it says nothing of who has the name now
		case l.uid != uid && !l.deleted && byID[l.uid+"/deleted"] != nil: // else it is a ghost
			v.complain(&v.Reordered, "%s comes before the delete of %s, which had the name before", Describe(e), l.uid)
		case l.uid == uid && !deleted && version <= l.version:
			v.complain(&v.Reordered, "%s comes after version %d", Describe(e), l.version)
		}
		l.uid, l.version, l.deleted = uid, version, deleted
		if deleted {
			l.dead[uid] = true
		}
	}
	return nil
}

// times checks that the time of an object never goes back within an epoch, the first part of a
// sequence.
func (v *Findings) times(first []read.Event) {
	newest := map[string]*read.Event{}
	for i := range first {
		e := &first[i]
		epoch, _, _ := strings.Cut(e.Attribute("sequence"), ".")
		key := e.Attribute("uid") + " " + epoch
		if before := newest[key]; before != nil && e.Time().Before(before.Time()) {
			v.Backwards = append(v.Backwards, fmt.Sprintf("%s has time %v, %s before it had %v",
				Describe(e), e.Time(), Describe(before), before.Time()))
			continue
		}
		newest[key] = e
	}
}

func (v *Findings) lost(changes []truth.Change, byID map[string]*read.Event, missing map[string][]gap) error {
	done := map[string]bool{} // two witnesses may have seen it
	for i := range changes {
		ch := &changes[i]
		id := ch.Metadata.UID + "/" + ch.Metadata.ResourceVersion
		if ch.Type == "DELETED" {
			id = ch.Metadata.UID + "/deleted"
		}
		if done[id] {
			continue
		}
		done[id] = true
		v.Witnessed++
		if byID[id] != nil {
			continue
		}
		version, err := number(ch.Metadata.ResourceVersion)
		if err != nil {
			return fmt.Errorf("%s %s: %w", ch.Collection, ch.Key(), err)
		}
		v.missing(ch, version, missing[ch.Collection.String()])
	}
	return nil
}

func (v *Findings) missing(ch *truth.Change, version uint64, gaps []gap) {
	covered, past := false, true
	for _, g := range gaps {
		if g.covers(version) {
			covered = true
			past = past && version > g.to
		}
	}
	switch {
	case !covered:
		v.complain(&v.Lost, "%s %s %s (uid %s, version %d) is missing", ch.Type, ch.Collection, ch.Key(), ch.Metadata.UID, version)
	case past:
		v.PastTo++
		fallthrough
	default:
		v.InGaps++
	}
}

// ghosts are objects that don't exist, whatever has become of them, and of which no delete was
// reported. Those whose whole life lies in a gap are given back by their uids.
func (v *Findings) ghosts(first []read.Event, exist []truth.Change, byID map[string]*read.Event, missing map[string][]gap) map[string]bool {
	unreported := map[string]bool{}
	alive := map[string]bool{}
	for i := range exist {
		alive[exist[i].Metadata.UID] = true
	}
	begin, last := map[string]*read.Event{}, map[string]*read.Event{}
	for i := range first {
		uid := first[i].Attribute("uid")
		if begin[uid] == nil {
			begin[uid] = &first[i]
		}
		last[uid] = &first[i]
	}
	for uid, e := range last {
		if alive[uid] || byID[uid+"/deleted"] != nil {
			continue
		}
		if within(begin[uid], e, missing[e.GroupResource()]) {
			v.Unreported++
			v.Silent = append(v.Silent, Describe(e)+" is the last event of an object that does not exist any more, though all of its life lies in a gap")
			unreported[uid] = true
			continue
		}
		v.complain(&v.Ghosts, "%s is the last event of an object that does not exist any more", Describe(e))
	}
	return unreported
}

// without leaves out the events of some objects.
func without(events []read.Event, uids map[string]bool) []read.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e read.Event) bool { return uids[e.Attribute("uid")] })
}

// within reports whether an object's events, from the first to the last, lie in one gap.
func within(first, last *read.Event, gaps []gap) bool {
	from, err := number(first.Attribute("resourceversion"))
	if err != nil {
		return false
	}
	to, err := number(last.Attribute("resourceversion"))
	return err == nil && slices.ContainsFunc(gaps, func(g gap) bool { return g.covers(from) && g.covers(to) })
}

func (v *Findings) stale(exist []truth.Change, events []read.Event, how string) {
	for _, problem := range check.FinalState(exist, events, check.Options{}) {
		v.complain(&v.Stale, "%s: %s", how, problem)
	}
}

// Describe is an event in a line.
func Describe(e *read.Event) string {
	inferred := ""
	if e.Attribute("inferred") == "true" {
		inferred = "inferred "
	}
	return fmt.Sprintf("%s%s %s version %s (%s, at %s %d)", inferred, e.Op(), e.Attribute("partitionkey"), e.Attribute("resourceversion"), e.ID(), e.Lane, e.Place)
}
