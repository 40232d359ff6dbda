package streams

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// comparison compares a stream with a history, each with what the other says that it has without a
// break: the stream by its gap, synced and progress events, the history by its coverage.
//
// It has 9 bytes of each version of the history.
type comparison struct {
	history *query.Questions
	checker *verify.Checker
	units   map[unitName]*comparedUnit
	// versions are hashes of what the history has, sorted; seen says which the stream has.
	versions []uint64
	seen     []bool
	// since is when the last of the lanes begins that the stream has not from its first message on.
	since    time.Time
	compared verify.Covered
}

type unitName struct{ source, informer, resource string }

func nameOf(e *event.Event) unitName {
	return unitName{e.Source, e.Informer, strings.TrimSuffix(e.Resource+"."+e.Group, ".")}
}

// comparedUnit is what both sides say of a resource of an informer.
type comparedUnit struct {
	unit     *record.Unit
	recorded side // the history's; its intervals are known before the stream is read
	streamed side
	lanes    map[string]bool // that have events of its objects
	example  event.Event     // of the informer
}

// side is what one of them says about itself.
type side struct {
	intervals []query.Interval
	notices   map[string]*query.Notice    // by id
	reached   map[laneScope]*query.Notice // the newest progress
	// omits are the keys by which versions are left out.
	omits []string
}

// laneScope is a lane of the stream, of one scope.
type laneScope struct {
	scope query.Scope
	lane  string
}

func newSide() side {
	return side{notices: map[string]*query.Notice{}, reached: map[laneScope]*query.Notice{}}
}

// newComparison reads which versions a history has.
func newComparison(h *query.Questions, checker *verify.Checker) (*comparison, error) {
	c := &comparison{history: h, checker: checker, units: map[unitName]*comparedUnit{}}
	for _, u := range h.Resources.Units() {
		if u.Resource == "" || u.Source == record.ArchiveSource {
			continue
		}
		unit := &comparedUnit{unit: u, recorded: newSide(), streamed: newSide(), lanes: map[string]bool{}}
		c.units[unitName{u.Source, u.Informer, u.GroupResource()}] = unit
		if err := c.readRecorded(unit); err != nil {
			return nil, err
		}
		for v, err := range h.Coverage.Stored(u) {
			if err != nil {
				return nil, err
			}
			c.versions = append(c.versions, hashOf(u, v.Namespace, v.Name, v.Sequence))
		}
	}
	slices.Sort(c.versions)
	c.seen = make([]bool, len(c.versions))
	return c, nil
}

func (c *comparison) readRecorded(u *comparedUnit) error {
	var err error
	u.recorded.intervals, err = c.history.Coverage.Intervals(query.CoverageQuery{
		Units: []*record.Unit{u.unit}, Namespace: "*",
	})
	if err != nil {
		return err
	}
	notices, progress, err := c.history.Coverage.Notes(u.unit)
	for _, m := range slices.Concat(notices, progress) {
		u.recorded.note(m)
	}
	return err
}

// note takes what an informer says about itself.
func (s *side) note(m *query.Notice) {
	s.notices[m.Event.ID] = m
	var data struct {
		Selective []string `json:"selective"`
	}
	_ = json.Unmarshal(m.Event.InformerData(), &data) // another payload has none
	for _, key := range data.Selective {
		if !slices.Contains(s.omits, key) {
			s.omits = append(s.omits, key)
		}
	}
}

func hashOf(u *record.Unit, namespace, name string, seq keys.Sequence) uint64 {
	var b [256]byte
	key := keys.AppendObject(b[:0], u.Number, namespace, name)
	return xxhash.Sum64(seq.Append(key))
}

// feed takes the next message of the stream. One that the history lacks, though its coverage says
// that it has all of these versions, is a fault.
func (c *comparison) feed(m *source.Message) error {
	e := &m.Event
	u := c.units[nameOf(e)]
	switch {
	case u == nil, e.Op == event.Attributed:
		return nil
	case e.AboutInformer():
		return u.hear(m)
	case slices.ContainsFunc(e.Extensions, func(a event.Attribute) bool { return a.Name == "deadletterreason" }):
		return nil
	}
	u.lanes[m.Lane] = true
	seq := keys.ParseSequence(e.Sequence, e.ResourceVersion, e.Op == event.Deleted)
	at, found := slices.BinarySearch(c.versions, hashOf(u.unit, e.Namespace, e.Name, seq))
	if found {
		c.seen[at] = true
		return nil
	}
	isGone := e.Op == event.Deleted && e.Inferred // each list that finds it so has another version
	if e.Op == event.Synced || isGone || !seq.IsNumber() || len(u.recorded.omits) > 0 {
		return nil
	}
	in := u.recorded.whole(u.unit, e.Namespace, e.Name, seq.Era, seq.Version)
	if in == nil || in.From == "" && record.TimeOf(e).Before(in.Since) { // retention has removed it
		return nil
	}
	c.checker.Add(e, verify.Unrecorded, verify.Position{Lane: m.Lane, Offset: m.Offset}, fmt.Sprintf(
		"the history's coverage has versions %s to %s without a break, and the history lacks this one",
		cmp.Or(in.From, "of its beginning"), in.To))
	return nil
}

// hear takes what the stream says about itself.
func (u *comparedUnit) hear(m *source.Message) error {
	e := m.Event
	e.ID, _, _ = strings.Cut(e.ID, "/partition/") // each partition of a topic has a copy
	notice, err := query.ReadNotice(u.unit, event.AppendStructured(nil, &e))
	if err != nil {
		return err
	}
	if e.Op == event.Progress || e.Op == event.Synced {
		u.streamed.reached[laneScope{notice.Scope(), m.Lane}] = notice
	}
	if u.streamed.note(notice); u.example.ID == "" {
		u.example = notice.Event
	}
	return nil
}

// begins notes that the stream does not have a lane from its first message on.
func (c *comparison) begins(m *source.Message) {
	if m.Stored.After(c.since) {
		c.since = m.Stored
	}
}

// whole returns the interval without a break that a version lies in, nil for none.
func (s *side) whole(
	unit *record.Unit, namespace, name string, epoch uint32, version uint64,
) (in *query.Interval) {
	for i := range s.intervals {
		of := &s.intervals[i]
		isOf := of.Scope().Has(unit, namespace, name) &&
			(of.Object == "" || of.Object == namespace+"/"+name)
		switch {
		case !isOf || !of.Has(epoch, version):
		case of.Gap != "":
			return nil
		default:
			in = of
		}
	}
	return in
}

// end makes the intervals of the stream, and finds what it lacks.
func (c *comparison) end(o *VerifyOptions, isWhole, isSparse bool, wants func(*event.Event) bool) error {
	for _, name := range slices.SortedFunc(maps.Keys(c.units), func(a, b unitName) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.informer, b.informer),
			cmp.Compare(a.resource, b.resource))
	}) {
		u := c.units[name]
		switch {
		case len(u.streamed.notices) == 0:
			c.checker.Note(fmt.Sprintf("the history has %s of informer %s, and the stream no event of that informer",
				name.resource, name.informer))
			continue
		case !wants(&u.example):
			continue
		}
		u.streamed.intervals = u.intervals()
		c.compared.Resources++
		c.findUndeclared(u)
		switch {
		case isSparse:
			c.checker.Note("the stream keeps only the newest messages of an object: what it lacks of the " +
				"coverage is not known")
		case len(u.streamed.omits) == 0:
			if err := c.missing(u, o, isWhole); err != nil {
				return err
			}
		}
	}
	c.checker.SetCovered(&c.compared)
	return nil
}

// intervals returns what the stream says that it has without a break. It is complete up to where
// all lanes are.
func (u *comparedUnit) intervals() (list []query.Interval) {
	scopes := map[query.Scope][]*query.Notice{}
	for _, m := range u.streamed.notices {
		scopes[m.Scope()] = append(scopes[m.Scope()], m)
	}
	for scope, notices := range scopes {
		slices.SortFunc(notices, func(a, b *query.Notice) int {
			return cmp.Or(cmp.Compare(a.Time.Unix(), b.Time.Unix()), cmp.Compare(a.Event.ID, b.Event.ID))
		})
		var said []*query.Notice
		for _, m := range notices {
			if m.Event.Op != event.Progress || m.IsUnwatched() {
				said = append(said, m)
			}
		}
		if end := u.lowest(scope); end != nil {
			list = append(list, until(query.IntervalsOf(u.unit, scope, said, []*query.Notice{end}), end)...)
		}
	}
	return list
}

// lowest returns up to where the stream is complete: the lowest that a lane with objects has
// reached, nil where one of them does not say it.
func (u *comparedUnit) lowest(scope query.Scope) (low *query.Notice) {
	of := map[string]*query.Notice{}
	for key, m := range u.streamed.reached {
		if key.scope == scope {
			of[key.lane] = m
		}
	}
	for lane := range u.lanes {
		if _, says := of[lane]; !says {
			return nil
		}
	}
	for _, m := range of {
		if low == nil || m.Time.Before(low.Time) {
			low = m
		}
	}
	return low
}

// until leaves out what is behind the end of the stream: a lane has it, and another may not.
func until(list []query.Interval, end *query.Notice) []query.Interval {
	return slices.DeleteFunc(list, func(i query.Interval) bool { return i.Since.After(end.Time) })
}

// missing finds versions that the history has and the stream lacks, though it says that it has all
// of these.
func (c *comparison) missing(u *comparedUnit, o *VerifyOptions, isWhole bool) error {
	var object []query.StoredKey
	judge := func() error {
		defer func() { object = object[:0] }()
		if len(object) == 0 || o.Namespace != "" && object[0].Namespace != o.Namespace {
			return nil
		}
		return c.missingOf(u, object, o.Since, isWhole)
	}
	for v, err := range c.history.Coverage.Stored(u.unit) {
		if err != nil {
			return err
		}
		if len(object) > 0 && object[0].Object != v.Object {
			if err := judge(); err != nil {
				return err
			}
		}
		object = append(object, v)
	}
	return judge()
}

// clocksDiffer is how far the clock of an API server may be from that of a broker.
const clocksDiffer = 10 * time.Minute

// missingOf finds the versions of one object that the stream lacks.
func (c *comparison) missingOf(u *comparedUnit, versions []query.StoredKey, since time.Time, isWhole bool) error {
	for i := range versions {
		v := &versions[i]
		if !v.Sequence.IsNumber() || v.Time.Before(since) || !isWhole && v.Time.Before(c.since.Add(clocksDiffer)) {
			continue
		}
		in := u.streamed.whole(u.unit, v.Namespace, v.Name, v.Sequence.Era, v.Sequence.Version)
		if in == nil && isWhole {
			in = u.listed(versions, i)
		}
		if in == nil {
			continue
		}
		c.compared.Versions++
		at, found := slices.BinarySearch(c.versions, hashOf(u.unit, v.Namespace, v.Name, v.Sequence))
		if !found || c.seen[at] {
			continue
		}
		e, err := c.history.Coverage.Event(v)
		if err != nil {
			return err
		}
		if e.Op == event.Deleted && e.Inferred {
			continue // the next list that finds it so may have reported it
		}
		c.checker.Add(e, verify.Missing, verify.Position{}, fmt.Sprintf(
			"the stream says that it has versions %s to %s without a break, and lacks this one, which the history has",
			cmp.Or(in.From, "of its beginning"), in.To))
	}
	return nil
}

// listed returns the interval of the stream that begins with a list in which a version was there;
// nil for none. The history says it, where it knows what was there then.
func (u *comparedUnit) listed(versions []query.StoredKey, i int) *query.Interval {
	v := &versions[i]
	if v.Op == event.Deleted {
		return nil
	}
	for at := range u.streamed.intervals {
		in := &u.streamed.intervals[at]
		from := number(in.From)
		isNewest := i+1 == len(versions) || versions[i+1].Sequence.Era > in.Epoch ||
			versions[i+1].Sequence.Version > from
		if in.Gap == "" && in.Epoch == v.Sequence.Era && in.Scope().Has(u.unit, v.Namespace, v.Name) &&
			v.Sequence.Version <= from && isNewest && u.begins(in) {
			return in
		}
	}
	return nil
}

// begins reports whether an interval of the stream begins with a list, at which the history had no
// break.
func (u *comparedUnit) begins(in *query.Interval) bool {
	isList := false
	for _, m := range u.streamed.notices {
		isList = isList || m.Event.Op == event.Synced && m.Scope() == in.Scope() &&
			m.Event.ResourceVersion == in.From && m.Epoch() == in.Epoch
	}
	return isList && slices.ContainsFunc(u.recorded.intervals, func(i query.Interval) bool {
		return i.Gap == "" && i.Scope() == in.Scope() && i.Epoch == in.Epoch && i.From != "" &&
			(i.From == in.From || i.Has(in.Epoch, number(in.From)))
	})
}

// number returns a version as a number, 0 for none.
func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

// findUndeclared finds gaps that one of the two reports, and the other one does not know. Which
// events a sink has lost is its own.
func (c *comparison) findUndeclared(u *comparedUnit) {
	for _, x := range []struct {
		has, lacks *side
		text       string
	}{
		{&u.streamed, &u.recorded, "the stream reports it, and the history's coverage has no break then"},
		{&u.recorded, &u.streamed, "the history reports it, and the stream has no break then"},
	} {
		for _, m := range x.has.gaps() {
			isWhole := slices.ContainsFunc(x.lacks.intervals, func(i query.Interval) bool {
				return i.Gap == "" && i.Scope() == m.Scope() && i.Since.Before(m.Time) && m.Time.Before(i.Until)
			})
			if x.lacks.notices[m.Event.ID] == nil && isWhole {
				c.checker.Add(&m.Event, verify.Undeclared, verify.Position{}, m.What()+": "+x.text)
			}
		}
	}
}

// gaps returns those that all sinks of an informer have, in the order of time.
func (s *side) gaps() (list []*query.Notice) {
	for _, m := range s.notices {
		switch m.Reason {
		case "forgotten", "dropped", query.ReasonRemoved, query.ReasonRecreated:
		default:
			if m.Event.Op == event.Gap || m.Event.Op == event.Quarantined {
				list = append(list, m)
			}
		}
	}
	slices.SortFunc(list, func(a, b *query.Notice) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Event.ID, b.Event.ID))
	})
	return list
}
