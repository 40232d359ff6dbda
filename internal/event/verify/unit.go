package verify

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// unitKey names what an informer reports of a resource.
type unitKey struct{ source, informer, resource string }

// unit is one resource of an informer.
type unit struct {
	unitKey
	number uint32
	// anchored is set when the unit begins with its first snapshot: then an object's first event
	// must be an added one, if nothing was removed before.
	begun, anchored bool
	// selective are the keys of the configuration by which versions are left out, as synced events
	// name them. The chain and deletes are not checked then.
	selective []string
	scopes    map[string]*scope
	newest    order
	// rounds are by lane; 0 is for all of them.
	rounds      map[uint32]round
	reported    []Reported
	reportedIDs map[string]bool

	objects, events, repeats, unchecked int
	withoutPrevious, unordered          int
}

// round counts snapshots that follow a forgotten state. Objects that were not seen since the one
// before alive are gone, and no event says so.
type round struct{ now, alive uint16 }

// scope is what one list covers: a unit's namespace and shard, all as a rule.
type scope struct {
	// complete is the version up to which everything is in the stream, by lane: each partition of a
	// Kafka topic has a copy of the event that says so.
	complete map[string]string
	// copied is set when each partition gets a copy of such events.
	copied    bool
	namespace string
	isOpen    bool   // a gap is reported, and no list has ended since
	gap       string // the last version before it
}

// Reported is something that the stream itself says it lacks.
type Reported struct {
	// Reason as gap events have it, as "expired" or "dropped"; or "dead letter", "quarantined".
	Reason string `json:"reason"`
	// From and To are versions; what is between them may be missing. Empty: from the start.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Dropped is the number of events that were dropped, where that is the reason.
	Dropped int      `json:"dropped,omitempty"`
	At      Position `json:"at"`
}

// maxReported bounds how many of them are kept for each unit. What is beyond is counted.
const maxReported = 10_000

// reasonForgotten, reasonDropped and reasonLost are of gaps behind which the chain has a hole.
// After a rewind no version can be compared with one of before.
const (
	reasonRewound    = resource.ReasonRewound
	reasonForgotten  = "forgotten"
	reasonDropped    = "dropped"
	reasonLost       = resource.ReasonLost
	reasonDeadLetter = "dead letter"
)

// unitOf returns the unit of an event.
func (c *Checker) unitOf(e *event.Event) *unit {
	key := unitKey{e.Source, e.Informer, groupResource(e)}
	if c.last != nil && c.last.unitKey == key {
		return c.last
	}
	u := c.units[key]
	if u == nil {
		u = &unit{
			unitKey: key, number: uint32(len(c.order)), scopes: map[string]*scope{},
			reportedIDs: map[string]bool{}, rounds: map[uint32]round{},
		}
		c.units[key], c.order = u, append(c.order, u)
	}
	c.last = u
	return u
}

// begin notes the first event of a unit. A unit that begins with its first snapshot, or with a gap
// that says that the state of before was lost, is here from its start.
func (u *unit) begin(e *event.Event) {
	if u.begun {
		return
	}
	u.begun = true
	snapshot := e.Op == event.Added && e.Initial
	list := e.AboutInformer() && (e.Op == event.Synced || reasonOf(e) == reasonForgotten)
	u.anchored = snapshot || list
}

// aboutInformer is what an informer's event says.
func (u *unit) aboutInformer(e *event.Event, at Position, lane uint32) {
	id, _, isCopy := strings.Cut(e.ID, "/partition/")
	if !isCopy {
		lane = 0
	}
	switch {
	case e.Op == event.Gap:
		u.gap(e, id, at, lane)
	case e.Op == event.Synced:
		u.synced(e, at, lane)
	case e.Op == event.Quarantined:
		u.addReported(e.ID, Reported{Reason: string(e.Op), To: e.ResourceVersion, At: at})
	case e.Op == event.Progress:
		u.reached(e, at)
	}
}

// scopeOf returns the scope that an informer's event is about: the beginning of its id.
func (u *unit) scopeOf(e *event.Event) *scope {
	name, _, _ := strings.Cut(e.ID, "/"+string(e.Op)+"/")
	s := u.scopes[name]
	if s == nil {
		s = &scope{namespace: e.Namespace, complete: map[string]string{}}
		u.scopes[name] = s
	}
	return s
}

// gapData is what is read of the data of a gap event.
type gapData struct {
	Reason  string `json:"reason"`
	From    string `json:"from"`
	To      string `json:"to"`
	Dropped int    `json:"dropped"`
}

func reasonOf(e *event.Event) string {
	var data gapData
	_ = json.Unmarshal(e.InformerData(), &data) // another payload has no reason
	return data.Reason
}

// gap takes a gap event, of which each partition may have a copy. id is the same for all copies.
func (u *unit) gap(e *event.Event, id string, at Position, lane uint32) {
	var data gapData
	_ = json.Unmarshal(e.InformerData(), &data) // it then reports a gap of which nothing is known
	reported := Reported{
		Reason: cmp.Or(data.Reason, "unknown"), From: data.From, To: data.To,
		Dropped: data.Dropped, At: at,
	}
	isNew, s := u.addReported(id, reported), u.scopeOf(e)
	isRepeat := !isNew && (lane == 0 || u.reportedIDs[e.ID])
	if data.Reason == reasonForgotten && len(u.scopes) == 1 && !isRepeat {
		// Nothing is said of what was deleted: what does not come up to the end of the list is
		// gone.
		u.reportedIDs[e.ID] = true
		r := u.rounds[lane]
		r.now++
		u.rounds[lane] = r
	}
	if isNew && !s.isOpen {
		s.isOpen, s.gap = true, data.From
	}
}

// addReported remembers what is reported as missing, once. It reports whether it was new.
func (u *unit) addReported(id string, reported Reported) bool {
	if u.reportedIDs[id] {
		return false
	}
	if len(u.reported) < maxReported {
		u.reportedIDs[id] = true
		u.reported = append(u.reported, reported)
	}
	return true
}

// listData is what is read of the data of a synced event, and of a progress event.
type listData struct {
	Version   string   `json:"version"`
	Selective []string `json:"selective"`
}

// reached takes an event that says up to which version a lane is complete, and by which keys
// versions are left out.
func (u *unit) reached(e *event.Event, at Position) *scope {
	var data listData
	_ = json.Unmarshal(e.InformerData(), &data) // the attribute has the version too
	s := u.scopeOf(e)
	s.complete[at.Lane] = cmp.Or(data.Version, e.ResourceVersion, s.complete[at.Lane])
	s.copied = s.copied || strings.Contains(e.ID, "/partition/")
	for _, key := range data.Selective {
		if !slices.Contains(u.selective, key) {
			u.selective = append(u.selective, key)
		}
	}
	return s
}

func (u *unit) synced(e *event.Event, at Position, lane uint32) {
	u.reached(e, at).isOpen = false
	r := u.rounds[lane]
	r.alive = r.now
	u.rounds[lane] = r
}

// covers reports whether the stream itself reports a version as missing.
func (u *unit) covers(version uint64) bool {
	return slices.ContainsFunc(u.reported, func(r Reported) bool {
		return (r.isLoss() || r.Reason == reasonForgotten) && r.spans(version)
	})
}

// coversInferred reports whether a gap is reported after which an inferred event of a version may
// come: what was before it may never have been sent.
func (u *unit) coversInferred(version uint64) bool {
	return slices.ContainsFunc(u.reported, func(r Reported) bool {
		return r.isGap() && (r.Reason == reasonRewound || number(r.From) <= version)
	})
}

// isLoss reports whether events are gone that were in the stream, or should have been.
func (r *Reported) isLoss() bool { return r.Reason == reasonDropped || r.Reason == reasonLost }

// isGap reports whether versions are missing, rather than one event.
func (r *Reported) isGap() bool {
	return r.Reason != reasonDeadLetter && r.Reason != string(event.Quarantined)
}

// coversSince reports whether something after a version is reported as missing.
func (u *unit) coversSince(version uint64) bool {
	return slices.ContainsFunc(u.reported, func(r Reported) bool {
		return r.Reason == reasonForgotten || r.isLoss() && number(r.To) >= version
	})
}

func (r *Reported) spans(version uint64) bool {
	return number(r.From) <= version && version <= number(r.To) || r.Reason == reasonForgotten
}

// number returns a version as a number, 0 for none.
func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// isAlive reports whether an object is there, as far as the stream reports.
func (u *unit) isAlive(o *object) bool {
	return o.alive && o.round >= u.rounds[0].alive+u.rounds[o.lane].alive
}

// lacking returns the partitions with objects in which no event says up to which version they are
// complete, though other partitions of their topic have one. So that event is missing, or the
// partition is younger than it.
func (s *scope) lacking(lanes []string) (list []string) {
	if !s.copied {
		return nil
	}
	topics := map[string]bool{}
	for lane := range s.complete {
		topics[topicOf(lane)] = true
	}
	for _, lane := range lanes {
		if _, has := s.complete[lane]; !has && topics[topicOf(lane)] {
			list = append(list, lane)
		}
	}
	return list
}

// topicOf returns the topic of a partition.
func topicOf(lane string) string { return lane[:max(0, strings.LastIndexByte(lane, '/'))] }

// upTo returns the version up to which each lane is complete, "" for none.
func (s *scope) upTo() (version string) {
	for i, lane := range slices.Sorted(maps.Keys(s.complete)) {
		if has := s.complete[lane]; i == 0 || has == "" || number(has) < number(version) {
			version = has
		}
		if version == "" {
			return ""
		}
	}
	return version
}
