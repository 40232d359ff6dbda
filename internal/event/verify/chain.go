package verify

import (
	"fmt"

	"github.com/kubebridge/bridge/internal/event"
)

// checkLink checks whether an event follows the newest one of its object: by its uid, by what
// happened, and by the version that it says was before.
func (c *Checker) checkLink(o *object, n uint32, s *subject) {
	if len(s.unit.selective) > 0 {
		return
	}
	alive := o.count > 0 && s.unit.isAlive(o)
	switch {
	case s.Op == event.Updated && s.Previous == "":
		s.unit.withoutPrevious++ // of a bridge before it had the attribute
	case alive && o.uid != s.uid:
		if x := c.holes.add(n, o.newest(), o.versions[0], s, NoDelete,
			"another object had the name, and no event says that it was deleted"); x != nil {
			x.uid = o.uid
		}
		if s.Previous != "" {
			c.unknown(o, n, s)
		}
	case alive:
		c.follows(o, n, s)
	case s.Previous != "":
		c.unknown(o, n, s)
	}
}

// follows checks an event of an object that is there.
func (c *Checker) follows(o *object, n uint32, s *subject) {
	newest := o.newest()
	// A list reports the newest state only, of what was known when it began; so does a new era.
	jump := s.Inferred || s.Initial || s.order.stage.compare(newest.stage) > 0
	previous := s.previous(c)
	switch {
	case s.Previous == "" && s.Op == event.Deleted:
		s.unit.withoutPrevious++
	case s.Previous == "":
		if !jump && s.Cause != event.CauseEntered {
			c.holes.add(n, newest, newest.version, s, Break,
				fmt.Sprintf("it is added, though the object is there in version %d", newest.version))
		}
	case previous == newest.version:
	case previous > newest.version || !s.ordered:
		c.holes.add(n, newest, previous, s, Break,
			fmt.Sprintf("version %s, which was before it, is missing%s", s.Previous, s.newestIs(newest)))
	case !jump:
		c.holes.add(n, newest, newest.version, s, Break,
			fmt.Sprintf("it says that version %s was before it, but version %d was", s.Previous,
				newest.version))
	}
}

// unknown checks an event of an object that is not there and should be.
func (c *Checker) unknown(o *object, n uint32, s *subject) {
	if o.count == 0 && !(s.unit.anchored && c.cfg.Whole()) {
		return // the stream begins behind its added event
	}
	kind, what := Break, fmt.Sprintf("version %s, which was before it, is missing, and so is "+
		"everything of the object", s.Previous)
	if s.Op == event.Deleted {
		kind, what = NoAdd, fmt.Sprintf("version %s of the object was never reported", s.Previous)
	}
	low := order{stage: s.order.stage}
	if o.count > 0 {
		low = o.newest()
	}
	c.holes.add(n, low, s.previous(c), s, kind, what)
}

// previous returns the version that was before, as a number or a hash as the event's own is.
func (s *subject) previous(c *Checker) uint64 {
	if s.ordered {
		return number(s.Previous)
	}
	return c.objects.hash(s.Previous)
}

// newestIs says which version is the newest, where it is a number.
func (s *subject) newestIs(at order) string {
	if !s.ordered {
		return ""
	}
	return fmt.Sprintf("; the newest is %d", at.version)
}

// hole is a stretch of an object's chain that is missing: what is behind low, up to high.
type hole struct {
	Fault
	low, high order
	uid       uint64 // of NoDelete, the object whose delete is missing
	unit      *unit
	ordered   bool
	inferred  bool // found by a list
}

// holes are those that no event has filled yet, by object.
type holes struct {
	of    map[uint32][]*hole
	count int
	// beyond are those that were not kept, by unit.
	beyond map[*unit]int
}

// maxHoles bounds how many are kept.
const maxHoles = 100_000

// add notes that what is behind low, up to a version, is missing before an event.
func (h *holes) add(n uint32, low order, high uint64, s *subject, kind Kind, what string) *hole {
	if h.count >= maxHoles {
		if h.beyond == nil {
			h.beyond = map[*unit]int{}
		}
		h.beyond[s.unit]++
		return nil
	}
	h.count++
	x := &hole{
		Fault: s.fault(kind, what), low: low, high: s.order.at(high), unit: s.unit,
		ordered: s.ordered, inferred: s.Inferred,
	}
	x.Fault.low = low.version
	if high < low.version { // the previous version is of the era before
		x.high = low.at(high)
	}
	h.of[n] = append(h.of[n], x)
	return x
}

// fill takes out of a hole an event that comes late. It reports whether there was one for it.
func (h *holes) fill(n uint32, s *subject) bool {
	for i, x := range h.of[n] {
		if !x.has(s) {
			continue
		}
		h.of[n] = append(h.of[n][:i:i], h.of[n][i+1:]...)
		h.count--
		if x.Kind != NoDelete {
			h.narrow(n, x, s)
		}
		return true
	}
	return false
}

// narrow keeps what is left of a hole on both sides of an event.
func (h *holes) narrow(n uint32, x *hole, s *subject) {
	if before := s.order.at(number(s.Previous)); before.compareVersions(x.low) > 0 {
		left := *x
		left.high = before
		h.of[n] = append(h.of[n], &left)
		h.count++
	}
	if s.order.compareVersions(x.high) < 0 {
		x.low, x.Fault.low = s.order, s.order.version
		h.of[n] = append(h.of[n], x)
		h.count++
	}
}

// has reports whether an event lies in the hole.
func (x *hole) has(s *subject) bool {
	if x.Kind == NoDelete {
		return s.Op == event.Deleted && x.uid == s.uid
	}
	return s.order.compareVersions(x.low) > 0 && s.order.compareVersions(x.high) <= 0
}

// isReported reports whether the stream itself reports what is missing.
func (x *hole) isReported() bool {
	if x.Kind == NoDelete || x.high == x.low.at(x.low.version) {
		return x.unit.coversSince(x.low.version)
	}
	if x.inferred && x.unit.coversInferred(x.high.version) {
		return true
	}
	return x.ordered && x.unit.covers(x.high.version)
}
