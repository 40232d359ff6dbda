package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/bridge/internal/event"
)

// Position is where a message lies.
type Position struct {
	// Lane is what is in order: "K8S", "k8s.prod.pods/3", a file.
	Lane string `json:"lane"`
	// Offset in it: a sequence, an offset, the number of a document.
	Offset uint64 `json:"offset"`
}

func (p Position) String() string { return fmt.Sprintf("%s %d", p.Lane, p.Offset) }

// Config of a Checker.
type Config struct {
	// Whole reports whether the stream is read from the first message that it ever held. Else an
	// object's history may begin anywhere. It is asked while events are fed. nil: it is not known.
	Whole func() bool
}

// Checker checks one stream.
type Checker struct {
	cfg     Config
	units   map[unitKey]*unit
	order   []*unit // by their numbers
	last    *unit   // of the event before
	lanes   map[string]uint32
	lane    string // of the event before
	laneNo  uint32
	objects objects
	holes   holes
	faults  faults
	// What is not about an object.
	messages, events, deadLetters int
	other                         counts
	compared                      *Comparison
	covered                       *Covered
	notices                       []string // of who feeds
}

// New makes a Checker.
func New(cfg Config) *Checker {
	if cfg.Whole == nil {
		cfg.Whole = func() bool { return false }
	}
	return &Checker{
		cfg: cfg, units: map[unitKey]*unit{}, lanes: map[string]uint32{}, objects: newObjects(),
		holes: holes{of: map[uint32][]*hole{}},
	}
}

// Removed reports that somebody has removed messages, from a position on. Objects of which all
// events were among them are not known.
func (c *Checker) Removed(at Position, messages uint64) {
	c.faults.add(Fault{
		Kind: Removed, At: at,
		What: fmt.Sprintf("%d messages were removed from here on, by no limit of the stream", messages),
	})
}

// Unreadable reports messages that can't be read, and why. What they hold is not known.
func (c *Checker) Unreadable(at Position, why error) {
	c.faults.add(Fault{Kind: Unreadable, At: at, What: fmt.Sprintf("what is here can't be read: %v", why)})
}

// Add adds a fault about an event, which a comparison with something else has found.
func (c *Checker) Add(e *event.Event, kind Kind, at Position, what string) {
	f := Fault{
		Kind: kind, Informer: e.Informer, Object: e.PartitionKey, Version: e.ResourceVersion, ID: e.ID,
		At: at, What: what, unit: c.unitOf(e),
	}
	if n := number(e.ResourceVersion); kind == Missing && n > 0 {
		f.low = n - 1
	}
	c.faults.add(f)
}

// Note adds to what the report says could not be checked, once.
func (c *Checker) Note(text string) {
	if !slices.Contains(c.notices, text) {
		c.notices = append(c.notices, text)
	}
}

// SetCovered sets how much was compared with the coverage of a history.
func (c *Checker) SetCovered(n *Covered) { c.covered = n }

// Other counts a message that is no event of the bridge, by a name for what it is.
func (c *Checker) Other(name string) {
	c.messages++
	c.other.add(name)
}

// Feed takes the next event of a lane. It keeps nothing of the event.
func (c *Checker) Feed(e *event.Event, at Position) {
	if e.Op == "" {
		c.Other("CloudEvent of type " + e.Type)
		return
	}
	c.messages++
	c.events++
	if e.Op == event.Attributed {
		return // it is about a change, and no change
	}
	u := c.unitOf(e)
	switch {
	case e.AboutInformer():
		u.begin(e)
		u.aboutInformer(e, at, c.laneOf(at.Lane))
	case e.UID == "" || e.ResourceVersion == "" || e.PartitionKey == "" || e.Name == "" ||
		e.Resource == "":
		c.faults.add(Fault{
			Kind: Contradiction, Object: e.PartitionKey, ID: e.ID, At: at,
			What: "it lacks an attribute that names its object",
		})
	default:
		u.begin(e)
		u.events++
		c.object(u, e, at)
	}
}

// subject is what is known of one event while it is checked.
type subject struct {
	*event.Event
	at   Position
	unit *unit
	// ordered is false where the version is no number; then order.version is a hash of it.
	order   order
	ordered bool
	id      uint32
	uid     uint64
	data    uint32 // 0 where it may differ when the event comes again
	manager uint16 // 0 for none
	letter  bool   // a dead letter
}

// object checks an event of an object.
func (c *Checker) object(u *unit, e *event.Event, at Position) {
	s := c.subject(u, e, at)
	if s.letter {
		c.deadLetters++
		u.addReported(e.ID+"/"+reasonDeadLetter, Reported{
			Reason: reasonDeadLetter, From: e.ResourceVersion, To: e.ResourceVersion, At: at,
		})
	} else if wrong := contradiction(e); wrong != "" {
		c.faults.add(s.fault(Contradiction, wrong))
	}
	n, known := c.objects.find(u.number, nameIn(e.PartitionKey))
	if !known {
		if s.letter {
			return // the stream may hold nothing but dead letters of this informer
		}
		n = c.objects.add(u.number, nameIn(e.PartitionKey))
		u.objects++
	}
	o := c.objects.at(n)
	c.checkLane(o, known, &s)
	switch {
	case e.Op == event.Synced:
		c.synced(o, n, known, &s)
	case known && o.count > 0 && c.cameBefore(o, n, &s):
	default:
		c.checkLink(o, n, &s)
		c.checkTime(o, &s)
		o.push(&s)
		o.alive, o.uid = e.Op != event.Deleted, s.uid
	}
	o.round = u.rounds[0].now + u.rounds[o.lane].now
	if s.ordered && s.order.compareVersions(u.newest) > 0 {
		u.newest = s.order.at(s.order.version)
	}
}

func (c *Checker) subject(u *unit, e *event.Event, at Position) subject {
	s := subject{
		Event: e, at: at, unit: u, id: uint32(c.objects.hash(e.ID)),
		uid: c.objects.hash(e.UID),
	}
	if e.Manager != "" {
		s.manager = uint16(c.objects.hash(e.Manager+"\x00"+e.ManagerSubresource+"\x00"+e.ManagerOperation)) | 1
	}
	s.order, s.ordered = parseOrder(e.Sequence)
	if !s.ordered {
		u.unordered++
		s.order = order{version: c.objects.hash(e.ResourceVersion)}
		if e.Op == event.Deleted {
			s.order.suffixes = deletedSuffix
		}
	}
	var smaller bool
	for _, a := range e.Extensions {
		smaller = smaller || a.Name == event.AttrOversize || a.Name == "truncated"
		s.letter = s.letter || a.Name == "deadletterreason"
	}
	// A list that follows a crash knows an earlier state of what is gone. What was made smaller for
	// a broker may be smaller still the next time.
	if !e.Inferred && !smaller && !s.letter {
		s.data = digest(e) | 1
	}
	return s
}

// digest stands for what each copy of an event has alike, and no check of a single event sees: its
// data, and the kind of its object.
func digest(e *event.Event) uint32 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(e.APIVersion + "\x00" + e.Kind + "\x00") // it never fails
	_, _ = d.Write(contentOf(e))
	return uint32(d.Sum64())
}

func (s *subject) fault(kind Kind, what string) Fault {
	return Fault{
		Kind: kind, Informer: s.Informer, Object: s.PartitionKey, Version: s.ResourceVersion, ID: s.ID,
		At: s.at, What: what, unit: s.unit,
	}
}

// checkLane sees whether all events of an object are in one lane: order is promised within one
// only.
func (c *Checker) checkLane(o *object, known bool, s *subject) {
	lane := c.laneOf(s.at.Lane)
	if known && o.lane != lane && !s.letter {
		c.faults.add(s.fault(Scattered,
			"earlier events of the object are in another partition, so their order is unknown"))
	}
	o.lane = lane
}

// mostBack is how far the times of an object may run back. A bridge keeps them in order, but a
// replica that takes over has other times for what both have seen: their clocks differ, and that of
// the API server may be minutes ahead.
const mostBack = 10 * 60

// checkTime sees whether the time of an object runs back in one history of the API server.
func (c *Checker) checkTime(o *object, s *subject) {
	at := s.Time.Unix()
	if at <= 0 || at > math.MaxUint32 {
		return
	}
	isSame := o.count > 0 && o.uid == s.uid && s.order.stage.compare(o.stage) == 0
	if isSame && at+mostBack < int64(o.time) {
		c.faults.add(s.fault(Backwards, fmt.Sprintf("its time is %s, an earlier event of the object has %s",
			s.Time.UTC().Format(time.RFC3339), time.Unix(int64(o.time), 0).UTC().Format(time.RFC3339))))
	}
	if !isSame || at > int64(o.time) {
		o.time = uint32(at)
	}
}

// laneOf returns the number of a lane, from 1 on.
func (c *Checker) laneOf(lane string) uint32 {
	if c.laneNo == 0 || c.lane != lane {
		number, found := c.lanes[lane]
		if !found {
			number = uint32(len(c.lanes)) + 1
			c.lanes[lane] = number
		}
		c.lane, c.laneNo = lane, number
	}
	return c.laneNo
}

// cameBefore checks an event that does not come behind the newest of its object. It reports false
// for one that does.
func (c *Checker) cameBefore(o *object, n uint32, s *subject) bool {
	if i := o.find(s.order, s.id); i >= 0 {
		s.unit.repeats++
		if has := o.data[i]; has != 0 && s.data != 0 && has != s.data {
			c.faults.add(s.fault(Changed, "it came before with the same id and other data, or another kind"))
		} else if has := o.managers[i]; has != 0 && s.manager != 0 && has != s.manager {
			c.faults.add(s.fault(Changed, "it came before with the same id and another manager"))
		}
		return true
	}
	newest := o.newest()
	after := s.order.compare(newest)
	// A list that follows a rewind shows of all objects of a name that they are gone as of its
	// version.
	isNext := after == 0 && s.Op == event.Deleted && s.Inferred && o.uid != s.uid
	if !s.ordered || after > 0 || isNext {
		return false
	}
	switch {
	case c.holes.fill(n, s):
		c.faults.add(s.fault(Disorder,
			fmt.Sprintf("it comes behind version %d of the object", o.versions[0])))
	case o.isBeyond(s.order):
		s.unit.repeats++
		s.unit.unchecked++
	default:
		f := s.fault(Disorder, fmt.Sprintf("it comes behind version %d of the object, and "+
			"was not there before", o.versions[0]))
		f.late = true
		c.faults.add(f)
	}
	return true
}

// synced checks an event that says of a known state that it is the newest.
func (c *Checker) synced(o *object, n uint32, known bool, s *subject) {
	switch {
	case !known:
		o.push(s)
		o.alive, o.uid = true, s.uid
	case s.ordered && s.order.compare(o.newest()) > 0:
		// An object that a sink had before it was bound again is reported by a snapshot alone.
		if !s.Initial {
			c.holes.add(n, o.newest(), s.order.version, s, Break, "no event has reported this version")
		}
		o.push(s)
		o.alive, o.uid = true, s.uid
	}
}

// counts are numbers by name. What is beyond maxNames is counted together.
type counts struct{ names map[string]int }

const maxNames = 100

func (c *counts) add(name string) {
	if c.names == nil {
		c.names = map[string]int{}
	}
	if _, known := c.names[name]; !known && len(c.names) >= maxNames {
		name = "of other kinds"
	}
	c.names[cmp.Or(name, "unnamed")]++
}

// Kind is what is wrong.
type Kind string

// The kinds of faults.
const (
	Removed       Kind = "removed"       // somebody has removed messages from the stream
	Unreadable    Kind = "unreadable"    // messages that can't be read, of which nothing is known
	Break         Kind = "break"         // a version is missing, as previous says
	Disorder      Kind = "disorder"      // an event comes behind a newer one of its object
	Backwards     Kind = "backwards"     // the time of an object runs back
	Changed       Kind = "changed"       // the same id came with other data, or another kind
	Contradiction Kind = "contradiction" // attributes and data of an event are not of one change
	NoAdd         Kind = "no-add"        // a delete of an object that was never added
	NoDelete      Kind = "no-delete"     // another object has the name, and the first was not deleted
	Scattered     Kind = "scattered"     // the events of an object are in several partitions
	// Beside the coverage of a history.
	Missing    Kind = "missing"    // the history has a version that the stream lacks, and reports to have
	Unrecorded Kind = "unrecorded" // the same the other way round
	Undeclared Kind = "undeclared" // one of them reports a gap, and the other one no break
	// Against a cluster.
	Stale  Kind = "stale"  // the cluster has a newer version
	Absent Kind = "absent" // the cluster has an object that the stream has not
	Extra  Kind = "extra"  // the stream has an object that the cluster has not
	Ahead  Kind = "ahead"  // the stream has a version that the cluster has not reached
)

// Kinds are all of them, in the order in which they are reported.
var Kinds = []Kind{
	Removed, Unreadable, Break, NoAdd, NoDelete, Disorder, Backwards, Changed, Contradiction,
	Scattered, Missing, Unrecorded, Undeclared, Stale, Absent, Extra, Ahead,
}

// Fault is one thing that is wrong.
type Fault struct {
	Kind     Kind   `json:"kind"`
	Informer string `json:"informer,omitempty"`
	// Object is its partition key: "deployments.apps/shop/web".
	Object  string   `json:"object"`
	Version string   `json:"version,omitempty"`
	ID      string   `json:"id,omitempty"`
	At      Position `json:"at,omitzero"`
	What    string   `json:"what"`

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
