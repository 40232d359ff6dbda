package verify

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
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
	ahead    []Fault
	newest   uint64 // version in the list of the target
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

// Targets returns the resources in the stream whose final state can be compared. Where the
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
	p.newest = max(p.newest, number(l.Version))
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
	p.findAhead(t, max(listed, p.newest))
	p.newest = 0
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

// findAhead finds objects in versions that the cluster has not reached: all that is read of the
// stream was read before the list. What an earlier history of the cluster had counts as reached.
func (p *Comparison) findAhead(t *Target, reached uint64) {
	objects := &p.checker.objects
	newest := 0
	for n := range objects.count {
		if o := objects.at(n); o.unit == t.number {
			newest = max(newest, int(o.era))
		}
	}
	for n := range objects.count {
		o := objects.at(n)
		if o.unit != t.number || int(o.era) < newest || o.versions[0] <= reached {
			continue
		}
		p.ahead = append(p.ahead, Fault{
			Kind: Ahead, Informer: t.Informer, Object: t.Resource + "/" + objects.nameOf(o),
			Version: fmt.Sprint(o.versions[0]), unit: p.checker.order[t.number],
			What: fmt.Sprintf("the cluster has reached version %d", reached),
		})
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

// Pending returns how many objects differ, as far as the stream is read: what comes later may
// settle them.
func (p *Comparison) Pending() int {
	p.pending = slices.DeleteFunc(p.pending, func(d difference) bool { return !p.differs(&d) })
	return len(p.pending)
}

// faults returns what still differs.
func (p *Comparison) faults() (list []Fault) {
	list = slices.Clone(p.ahead)
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

// contradiction says how an event of an object contradicts itself; "" when it does not. An id that
// was reused, a body of another event and a changed version are found by it.
func contradiction(e *event.Event) string {
	if wrong := contradictionOfID(e); wrong != "" {
		return wrong
	}
	if !isSequence(e) {
		return fmt.Sprintf("its sequence is %s, its resourceversion %s and its operation %s", e.Sequence,
			e.ResourceVersion, e.Op)
	}
	if want := groupResource(e) + "/" + e.Namespace + "/" + e.Name; e.PartitionKey != want {
		return fmt.Sprintf("its partitionkey is %s, its other attributes are of %s", e.PartitionKey, want)
	}
	if !strings.HasSuffix(e.Subject, "/"+e.Resource+"/"+e.Name) {
		return fmt.Sprintf("its subject is %s, its other attributes are of %s", e.Subject, e.PartitionKey)
	}
	return contradictionOfData(e)
}

// groupResource is "deployments.apps", or "pods" for the core group.
func groupResource(e *event.Event) string {
	if e.Group == "" {
		return e.Resource
	}
	return e.Resource + "." + e.Group
}

// isSequence reports whether the sequence of an event is of its other attributes.
func isSequence(e *event.Event) bool {
	version, end, entered := e.ResourceVersion, "", ""
	if _, rest, found := strings.Cut(e.ID, "/entered/"); found {
		entered, _, _ = strings.Cut(rest, "/")
		entered = "entered." + padded(entered) + "."
	}
	_, has, found := strings.Cut(e.Sequence, ".")
	if !found { // of an older bridge: no epoch, and nothing for a delete
		return e.Sequence == "" || e.Sequence == padded(version)
	}
	if e.Op == event.Deleted {
		end = ".deleted"
		if e.Inferred || e.Cause == event.CauseLeft {
			version = laterVersion(e)
		}
	}
	return has == entered+padded(version)+end
}

// laterVersion returns the version as of which a list found an object to be gone, if that can be.
// It is not before the last one that is known, unless the server's versions went back.
func laterVersion(e *event.Event) string {
	at, ok := parseOrder(e.Sequence)
	if ok && (at.era > 0 || at.version > number(e.ResourceVersion)) {
		return strconv.FormatUint(at.version, 10)
	}
	return e.ResourceVersion
}

// padded returns a version as a sequence has it.
func padded(version string) string {
	const digits = "00000000000000000000"
	if _, err := strconv.ParseUint(version, 10, 64); err != nil || version[0] == '0' ||
		len(version) >= len(digits) {
		return version
	}
	return digits[len(version):] + version
}

// contradictionOfID compares an id with what it is made of.
func contradictionOfID(e *event.Event) string {
	rest, ok := strings.CutPrefix(e.ID, e.UID+"/")
	if !ok {
		return fmt.Sprintf("its id is %s, its uid %s", e.ID, e.UID)
	}
	rest, era, ok := cutEra(rest)
	if !ok {
		return fmt.Sprintf("its id is %s, which the bridge does not make", e.ID)
	}
	if at, found := parseOrder(e.Sequence); found {
		if uint64(at.era) != era {
			return fmt.Sprintf("its id is %s, its sequence %s", e.ID, e.Sequence)
		}
	}
	rest, _, _ = strings.Cut(rest, "/entered/")
	version, form, _ := strings.Cut(rest, "/")
	switch e.Op {
	case event.Deleted:
		switch {
		case rest == "deleted", form == "deleted" && version == e.Previous,
			form == "left" && version == e.ResourceVersion:
			return ""
		}
	case event.Synced:
		round, isSync := strings.CutPrefix(form, "sync/")
		if _, err := strconv.ParseInt(round, 10, 64); isSync && err == nil &&
			version == e.ResourceVersion {
			return ""
		}
	default:
		if rest == e.ResourceVersion {
			return ""
		}
	}
	return fmt.Sprintf("its id is %s, its resourceversion %s and its operation %s", e.ID,
		e.ResourceVersion, e.Op)
}

// cutEra takes the epoch and the selection off the end of an id. era is their sum.
func cutEra(id string) (rest string, era uint64, ok bool) {
	rest = id
	for _, part := range []string{"/selection/", "/epoch/"} {
		before, number, found := strings.Cut(rest, part)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return id, 0, false
		}
		rest, era = before, era+n
	}
	return rest, era, true
}

// contentOf returns what the data of equal ids has to be. Debezium's form has the time of the event
// in it, which an event that was observed twice has twice.
func contentOf(e *event.Event) []byte {
	if object, ok := event.DebeziumObject(e.Data); ok {
		return object
	}
	return e.Data
}

// contradictionOfData compares the metadata of the payload with the attributes. Forms of payload
// that have no metadata are not compared.
func contradictionOfData(e *event.Event) string {
	if len(e.Data) == 0 {
		return ""
	}
	if !jsontext.Value(e.Data).IsValid() {
		return "its data is no JSON"
	}
	metadata, old := metadataOf(jsontree.Parse(e.Data))
	if !metadata.Exists() {
		return ""
	}
	has := readIdentity(metadata)
	want := identity{e.UID, e.Namespace, e.Name, e.ResourceVersion}
	if e.Op == event.Deleted {
		has.version, want.version = "", "" // the last state that is known may be an earlier one
	}
	if wrong := has.differs(want, e.DataType == event.MergePatchContentType); wrong != "" {
		return "its data has " + wrong
	}
	if !old.Exists() {
		return ""
	}
	want.version = e.Previous
	if wrong := readIdentity(old).differs(want, e.Previous == ""); wrong != "" {
		return "the old object in its data has " + wrong
	}
	return ""
}

// metadataOf finds the metadata of an object, or of the two objects of a payload with changes.
func metadataOf(body jsontree.Value) (metadata, old jsontree.Value) {
	for w := body.Walk(); w.Next(); {
		switch w.Name() {
		case "metadata":
			return w.Value(), old
		case "object":
			metadata, _ = metadataOf(w.Value())
		case "old":
			old, _ = metadataOf(w.Value())
		case "after": // of Debezium, as before; of a delete it is null
			metadata, _ = metadataOf(w.Value())
		case "before":
			old, _ = metadataOf(w.Value())
		}
	}
	if !metadata.Exists() { // a delete has its object before the change
		metadata, old = old, metadata
	}
	return metadata, old
}

// identity is what names an object and its version.
type identity struct{ uid, namespace, name, version string }

func readIdentity(metadata jsontree.Value) (i identity) {
	for w := metadata.Walk(); w.Next(); {
		var into *string
		switch w.Name() {
		case "uid":
			into = &i.uid
		case "namespace":
			into = &i.namespace
		case "name":
			into = &i.name
		case "resourceVersion":
			into = &i.version
		default:
			continue
		}
		if text, err := jsontext.AppendUnquote(nil, w.Value().Raw()); err == nil {
			*into = string(text)
		}
	}
	return i
}

// differs names the first member that is not as wanted; of a patch only members that it has.
func (i identity) differs(want identity, patch bool) string {
	for _, m := range []struct{ name, has, want string }{
		{"the uid", i.uid, want.uid},
		{"the name", i.name, want.name},
		{"the namespace", i.namespace, want.namespace},
		{"the resourceVersion", i.version, want.version},
	} {
		if m.has != m.want && !(patch && m.has == "") {
			return fmt.Sprintf("%s %q, its attributes %q", m.name, m.has, m.want)
		}
	}
	return ""
}
