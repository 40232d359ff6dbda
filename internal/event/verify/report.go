package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Report is what a Checker has found.
type Report struct {
	// Source is where the events were read from.
	Source string `json:"source"`
	// OK is true when everything was read and nothing is wrong.
	OK bool `json:"ok"`
	// Whole is true when the stream was read from the first message that it ever held.
	Whole bool `json:"whole"`
	// ReadToEnd is false when the source could not be read to its end.
	ReadToEnd bool `json:"readToEnd"`
	// Messages are all that were read, Events those of them that are of a bridge.
	Messages int `json:"messages"`
	Events   int `json:"events"`
	// Objects are all that the stream names, once for each informer; Alive those that exist at its
	// end.
	Objects int `json:"objects"`
	Alive   int `json:"alive"`
	// Repeats are events that came before. UncheckedRepeats are those of them whose data could not
	// be compared, since 4 newer events of the object came between.
	Repeats          int `json:"repeats"`
	UncheckedRepeats int `json:"uncheckedRepeats,omitempty"`
	DeadLetters      int `json:"deadLetters,omitempty"`
	// Faults are counted by kind; Found are the first of them.
	Faults map[Kind]int `json:"faults,omitempty"`
	Found  []Fault      `json:"found,omitempty"`
	// Resources are what the stream reports of each resource of an informer.
	Resources []Resource `json:"resources,omitempty"`
	// Cluster is what was compared with the API server.
	Cluster *Compared `json:"cluster,omitempty"`
	// Covered is what was compared with the coverage of a history.
	Covered *Covered `json:"covered,omitempty"`
	// Other are messages that are no events of a bridge, by what they are.
	Other map[string]int `json:"other,omitempty"`
	// Notes are what could not be checked, and why.
	Notes []string `json:"notes,omitempty"`
}

// Compared is how much was compared with the API server.
type Compared struct {
	Resources int `json:"resources"`
	Objects   int `json:"objects"`
}

// Covered is how much was compared with the coverage of a history.
type Covered struct {
	Resources int `json:"resources"`
	// Versions are those that the stream must have.
	Versions int `json:"versions"`
}

// Resource is what a stream reports of one resource of an informer.
type Resource struct {
	Source   string `json:"source"`
	Informer string `json:"informer"`
	Resource string `json:"resource"` // "deployments.apps"
	Objects  int    `json:"objects"`
	Alive    int    `json:"alive"`
	Events   int    `json:"events"`
	// Newest is the highest version of an event.
	Newest string `json:"newest,omitempty"`
	// Complete is the version up to which the stream has everything: as the newest list or progress
	// event says, or less where a version is missing. Empty where nothing says it.
	Complete string `json:"complete,omitempty"`
	// Chain is "checked", or why the chain of previous versions can't be.
	Chain  string `json:"chain"`
	Faults int    `json:"faults,omitempty"`
	// Reported are what the stream itself reports as missing.
	Reported []Reported `json:"reported,omitempty"`
}

// Chain of a Resource that was checked.
const ChainChecked = "checked"

// maxFound bounds the faults that a report shows.
const maxFound = 1000

// Report judges what was fed.
func (c *Checker) Report() *Report {
	r := &Report{
		Whole: c.cfg.Whole(), ReadToEnd: true, Messages: c.messages, Events: c.events,
		DeadLetters: c.deadLetters, Covered: c.covered, Notes: slices.Clone(c.notices),
		Other: c.other.names, Faults: map[Kind]int{},
	}
	found := c.judge(r.Faults)
	alive := make([]int, len(c.order))
	used := make([]map[uint32]bool, len(c.order)) // lanes
	for n := range c.objects.count {
		o := c.objects.at(n)
		if o.count > 0 && c.order[o.unit].isAlive(o) {
			alive[o.unit]++
		}
		if used[o.unit] == nil {
			used[o.unit] = map[uint32]bool{}
		}
		used[o.unit][o.lane] = true
	}
	lacking := map[string]bool{}
	for _, u := range c.order {
		lanes := c.laneNames(used[u.number])
		for _, s := range u.scopes {
			for _, lane := range s.lacking(lanes) {
				lacking[lane] = true
			}
		}
		resource := u.report(found, r.Whole, lanes)
		resource.Alive = alive[u.number]
		r.Objects, r.Alive, r.Repeats, r.UncheckedRepeats = r.Objects+u.objects, r.Alive+resource.Alive,
			r.Repeats+u.repeats, r.UncheckedRepeats+u.unchecked
		r.Resources = append(r.Resources, resource)
	}
	slices.SortFunc(r.Resources, func(a, b Resource) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Informer, b.Informer),
			cmp.Compare(a.Resource, b.Resource))
	})
	r.Found = sorted(found)
	r.Found = r.Found[:min(len(r.Found), maxFound)]
	r.OK = len(r.Faults) == 0
	c.notes(r)
	for _, lane := range slices.Sorted(maps.Keys(lacking)) {
		r.Notes = append(r.Notes, fmt.Sprintf("partition %s has events of objects, "+
			"and no informer event "+
			"as other partitions have: up to which version it is complete is not known", lane))
	}
	return r
}

// laneNames returns the names of lanes, sorted.
func (c *Checker) laneNames(numbers map[uint32]bool) (names []string) {
	for name, number := range c.lanes {
		if numbers[number] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// judge returns the faults, and counts them. What the stream itself reports as missing is no fault.
func (c *Checker) judge(count map[Kind]int) (found []Fault) {
	for _, f := range c.faults.kept {
		if !f.late || !slices.Contains(f.unit.selective, "latest") {
			found = append(found, f)
		}
	}
	for _, list := range c.holes.of {
		for _, x := range list {
			if len(x.unit.selective) == 0 && !x.isReported() {
				found = append(found, x.Fault)
			}
		}
	}
	if c.compared != nil {
		found = append(found, c.compared.faults()...)
	}
	for i := range found {
		count[found[i].Kind]++
	}
	for kind, n := range c.faults.beyond {
		count[kind] += n
	}
	for u, n := range c.holes.beyond {
		if len(u.selective) == 0 {
			count[Break] += n
		}
	}
	return found
}

func (u *unit) report(found []Fault, whole bool, lanes []string) Resource {
	r := Resource{
		Source: u.source, Informer: u.informer, Resource: u.resource, Objects: u.objects,
		Events: u.events,
		Chain:  u.chain(whole), Reported: u.reported,
	}
	if u.newest.version > 0 {
		r.Newest = fmt.Sprint(u.newest.version)
	}
	r.Complete = u.complete(lanes)
	for i := range found {
		if f := &found[i]; f.unit == u {
			r.Faults++
			if slices.Contains([]Kind{Break, NoAdd, NoDelete, Missing}, f.Kind) {
				r.Complete = lower(r.Complete, f.low)
			}
		}
	}
	return r
}

// chain reports whether the chain of previous versions was checked.
func (u *unit) chain(whole bool) string {
	switch {
	case len(u.selective) > 0:
		slices.Sort(u.selective)
		return "left out by " + strings.Join(u.selective, ", ")
	case u.withoutPrevious > 0:
		return fmt.Sprintf("not checkable in %d events without previous", u.withoutPrevious)
	case !u.anchored || !whole:
		return ChainChecked + ", but for what was before the stream's start"
	}
	return ChainChecked
}

// complete returns the lowest version up to which one of the unit's lists is complete, in the lanes
// that it has objects in.
func (u *unit) complete(lanes []string) (version string) {
	for i, name := range slices.Sorted(maps.Keys(u.scopes)) {
		s := u.scopes[name]
		upTo := s.upTo()
		if len(s.lacking(lanes)) > 0 {
			return ""
		}
		if s.isOpen {
			upTo = lower(upTo, number(s.gap))
		}
		if i == 0 || upTo == "" || number(upTo) < number(version) {
			version = upTo
		}
		if upTo == "" {
			return ""
		}
	}
	return version
}

// lower returns the earlier one of two versions, "" for none.
func lower(version string, other uint64) string {
	switch {
	case version == "" || other == 0:
		return ""
	case other < number(version):
		return fmt.Sprint(other)
	}
	return version
}

// notes says what could not be checked.
func (c *Checker) notes(r *Report) {
	note := func(n int, format string, args ...any) {
		if n > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
		}
	}
	unordered, without := 0, 0
	for _, u := range c.order {
		unordered += u.unordered
		without += u.withoutPrevious
	}
	note(unordered, "%d events have a sequence of another bridge, or none that is a number: "+
		"their order can't be checked", unordered)
	note(without, "%d events have no previous: whether a version is missing before "+
		"them can't be checked", without)
	note(r.UncheckedRepeats, "%d repeats came behind more than %d newer events of their object: "+
		"their data was not compared", r.UncheckedRepeats, ringSize)
	if c.events > 0 && !c.cfg.Whole() {
		note(1, "the stream is not here from its start: an object's first event may be any")
	}
	if p := c.compared; p != nil {
		r.Cluster = &Compared{Resources: p.compared, Objects: p.objects}
		note(len(p.skipped), "the final state was not compared where the configuration selects what "+
			"the API server can't be asked for: %s", strings.Join(p.skipped, ", "))
	}
}
