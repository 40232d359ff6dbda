package verify

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Listed is an object that the API server has.
type Listed struct{ Namespace, Name, UID, Version string }

func (l *Listed) key() string { return l.Namespace + "/" + l.Name }

// Target is a resource of which the final state can be compared.
type Target struct {
	Informer string
	Resource string // "deployments.apps"
	// Namespaces that the informer lists; none for all.
	Namespaces []string
	number     uint32
}

// Comparison is of a stream's final state with what the API server has.
type Comparison struct {
	checker  *Checker
	pending  []difference
	compared int // resources
	objects  int
	skipped  []string // resources that can't be compared, and the keys because of which
}

// difference may yet be settled by an event that comes later.
type difference struct {
	unit   *unit
	listed Listed // of an object that the API server does not have, the names only
	number uint32 // of the object in the stream
	extra  bool
}

// Compare begins a comparison, which is then in the Report. Its Targets are to be listed.
func (c *Checker) Compare() *Comparison {
	c.compared = &Comparison{checker: c}
	return c.compared
}

// Targets are the resources in the stream whose final state can be compared. Where the
// configuration leaves deletes out it can't.
func (p *Comparison) Targets() (list []Target) {
	for _, u := range p.checker.order {
		t := Target{Informer: u.informer, Resource: u.resource, number: u.number}
		for _, s := range u.scopes {
			if s.namespace != "" && !slices.Contains(t.Namespaces, s.namespace) {
				t.Namespaces = append(t.Namespaces, s.namespace)
			}
		}
		slices.Sort(t.Namespaces)
		if i := slices.IndexFunc(u.selective,
			func(key string) bool { return key == "filter" || key == "operations" }); i >= 0 {
			p.Skip(&t, u.selective[i])
			continue
		}
		if !u.hasAllShards() {
			p.Skip(&t, "shard")
			continue
		}
		list = append(list, t)
	}
	return list
}

// hasAllShards reports whether the stream has each shard of the informer, where it is split.
func (u *unit) hasAllShards() bool {
	found, count := map[string]bool{}, 0
	for name := range u.scopes {
		if _, shard, ok := strings.Cut(name, "/shard-"); ok {
			_, of, _ := strings.Cut(shard, "-of-")
			found[shard], count = true, max(count, int(number(of)))
		}
	}
	return len(found) >= count
}

// Skip notes that a target can't be compared, and the key of the configuration that is why.
func (p *Comparison) Skip(t *Target, key string) {
	p.skipped = append(p.skipped, fmt.Sprintf("%s of informer %s (%s)", t.Resource, t.Informer, key))
}

// Object compares an object of a target's list.
func (p *Comparison) Object(t *Target, l Listed) {
	p.objects++
	u := p.checker.order[t.number]
	d := difference{unit: u, listed: l}
	n, known := p.checker.objects.find(u.number, l.key())
	if known {
		p.checker.objects.at(n).listed = true
	}
	if d.number = n; p.differs(&d) {
		p.pending = append(p.pending, d)
	}
}

// End ends the list of a target, which is as of a version: what the stream has in a later one and
// the list has not was added since. Without a version nothing is later.
func (p *Comparison) End(t *Target, version string) {
	c, listed := p.checker, uint64(math.MaxUint64)
	if version != "" {
		listed = number(version)
	}
	p.compared++
	for n := range c.objects.count {
		o := c.objects.at(n)
		if o.unit != t.number {
			continue
		}
		d := difference{unit: c.order[o.unit], number: n, extra: true}
		if !o.listed && o.versions[0] <= listed && p.differs(&d) {
			namespace, name, _ := strings.Cut(c.objects.nameOf(o), "/")
			d.listed = Listed{Namespace: namespace, Name: name}
			p.pending = append(p.pending, d)
		}
		o.listed = false
	}
}

// differs reports whether the stream and the cluster differ in an object, as far as is read.
func (p *Comparison) differs(d *difference) bool {
	objects := &p.checker.objects
	n, known := objects.find(d.unit.number, d.listed.key())
	if d.extra {
		n, known = d.number, true
	}
	if !known {
		return true
	}
	o := objects.at(n)
	if d.extra {
		return d.unit.isAlive(o)
	}
	if o.versions[0] > number(d.listed.Version) {
		return false // it has changed since
	}
	isOther := !d.unit.isAlive(o) || o.uid != objects.hash(d.listed.UID)
	return isOther || !d.unit.leavesUpdatesOut() && o.versions[0] != number(d.listed.Version)
}

// leavesUpdatesOut reports whether the newest version of an object may be missing by design.
func (u *unit) leavesUpdatesOut() bool {
	return slices.ContainsFunc(u.selective, func(key string) bool { return key != "latest" })
}

// Pending is how many objects differ, as far as the stream is read: what comes later may settle
// them.
func (p *Comparison) Pending() int {
	p.pending = slices.DeleteFunc(p.pending, func(d difference) bool { return !p.differs(&d) })
	return len(p.pending)
}

// faults are what still differs.
func (p *Comparison) faults() (list []Fault) {
	for i := range p.pending {
		d := &p.pending[i]
		f := Fault{
			Kind: Absent, Informer: d.unit.informer, Object: d.unit.resource + "/" + d.listed.key(),
			Version: d.listed.Version, unit: d.unit,
			What: "the cluster has it, the stream does not",
		}
		n, known := p.checker.objects.find(d.unit.number, d.listed.key())
		switch {
		case d.extra:
			f.Kind, f.Version = Extra, fmt.Sprint(p.checker.objects.at(n).versions[0])
			f.What = "the stream has it, the cluster does not"
		case known && p.checker.objects.at(n).alive:
			f.Kind, f.What = Stale, fmt.Sprintf("the newest version in the stream is %d",
				p.checker.objects.at(n).versions[0])
		case known:
			f.What = "the cluster has it, in the stream it is deleted"
		}
		list = append(list, f)
	}
	return list
}
