package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// maxRing is how many events of a resource are kept for watches that lag. One that lags by more
// ends with 410 Gone.
const maxRing = 4096

// collection is the state of a resource. Client.mu guards it, but for the objects, which do not
// change.
type collection struct {
	isState bool // of the source
	objects map[string]*object
	gone    map[string]string // sequences of deletes, so that a repeat brings nothing back
	units   map[unitKey]*unit
	ends    map[string]string // by informer: the topic in which its lists end
	version uint64            // highest resourceVersion

	complete bool   // it is the state of the cluster at some time
	lacking  string // why it never will be, "" for nothing
	epoch    int    // how often watches had to end
	ring     []change
	begin    uint64 // number of ring[0]
}

// unitKey names an informer's share of a resource.
type unitKey struct{ name, topic string }

// unit is an informer's share of a resource. Each partition of its topic has a copy of what is said
// about it.
type unit struct {
	copies map[int32]*unitCopy
	// isWhole is set once the objects of a list were found in the partitions, in each up to the end
	// of that list. A source of the state has no need of it.
	isWhole bool
}

// unitCopy is what one partition says about a unit.
type unitCopy struct {
	synced, gap bool
	list        string // id of the list that has ended last
	objects     int    // that the partition had of the unit then
}

// change is what watches are sent.
type change struct {
	op     watch.EventType
	object *object
}

// object in one version.
type object struct {
	subject, informer, namespace, uid, sequence string

	partition partition
	raw       []byte
	isStale   bool // reported before a gap that forgot everything, and not since

	mu      sync.Mutex
	decoded map[*runtime.Scheme]runtime.Object // guarded by mu
}

func newCollection(isState bool) *collection {
	co := &collection{isState: isState}
	co.reset()
	return co
}

func (co *collection) reset() {
	co.objects, co.gone, co.units = map[string]*object{}, map[string]string{}, map[unitKey]*unit{}
	co.ends = map[string]string{}
	co.complete, co.lacking = false, ""
	co.expire()
}

// expire ends all watches.
func (co *collection) expire() {
	co.epoch++
	co.begin += uint64(len(co.ring))
	co.ring = nil
}

// settle looks whether the collection has become complete. counts has how many partitions each
// topic has.
func (co *collection) settle(counts map[string]int) {
	complete := len(co.units) > 0
	for key, u := range co.units {
		complete = complete && (u.isWhole || co.isState) && len(u.copies) == counts[key.topic]
		for _, copied := range u.copies {
			complete = complete && copied.synced && !copied.gap
		}
	}
	if complete && !co.complete {
		co.expire() // no watch was sent what has changed since
	}
	co.complete = complete
}

// apply takes an event of an object.
func (co *collection) apply(e *Event, m *message) error {
	key, sequence := e.key(), e.Attribute("sequence")
	before := co.objects[key]
	if before != nil && sequence < before.sequence || sequence < co.gone[key] {
		return nil // a repeat of what is known
	}
	if version, err := strconv.ParseUint(e.Attribute("resourceversion"), 10, 64); err == nil {
		co.version = max(co.version, version)
	}
	if e.IsDelete() {
		if len(co.gone) >= maxRing {
			clear(co.gone)
		}
		co.gone[key] = sequence
		if before != nil {
			co.remove(key, before)
		}
		return nil
	}
	raw, err := payload(e)
	if err != nil {
		return fmt.Errorf("%s %s: %w", e.Resource(), key, err)
	}
	delete(co.gone, key)
	co.checkTopic(e.Attribute("informer"), m.partition.topic)
	now := &object{
		subject: m.subject, informer: e.Attribute("informer"), namespace: e.Attribute("namespace"),
		uid: e.Attribute("uid"), sequence: sequence, partition: m.partition, raw: raw,
	}
	co.objects[key] = now
	switch {
	case before == nil:
		co.emit(watch.Added, now)
	case before.uid != now.uid:
		co.emit(watch.Deleted, before)
		co.emit(watch.Added, now)
	case before.sequence != now.sequence:
		co.emit(watch.Modified, now)
	default:
		co.objects[key] = before // nothing has changed
		before.isStale = false
	}
	return nil
}

func (co *collection) remove(key string, o *object) {
	delete(co.objects, key)
	co.emit(watch.Deleted, o)
}

func (co *collection) emit(op watch.EventType, o *object) {
	if !co.complete {
		return
	}
	if len(co.ring) >= maxRing {
		const some = maxRing / 4
		co.ring = append(make([]change, 0, maxRing), co.ring[some:]...)
		co.begin += some
	}
	co.ring = append(co.ring, change{op, o})
}

// applyAbout takes an event about an informer.
func (co *collection) applyAbout(e *Event, p partition, counts map[string]int) {
	key := unitKey{e.unit(), p.topic}
	u := co.units[key]
	if u == nil {
		u = &unit{copies: map[int32]*unitCopy{}}
		co.units[key] = u
	}
	copied := u.copies[p.number]
	if copied == nil {
		copied = &unitCopy{}
		u.copies[p.number] = copied
	}
	var data struct {
		Reason string
		Items  int
	}
	_ = json.Unmarshal(e.Data(), &data) // what it lacks is zero
	switch e.Type() {
	case TypeGap:
		if data.Reason == "dropped" || data.Reason == "lost" {
			return // nothing follows that would end it
		}
		copied.gap, co.complete = true, false
		for _, o := range co.objects {
			if data.Reason == "forgotten" && o.partition == p && co.isOf(o, e) {
				o.isStale = true
			}
		}
	case TypeSynced:
		copied.synced, copied.gap = true, false
		copied.list, _, _ = strings.Cut(e.ID(), "/partition/")
		copied.objects = co.endList(e, p)
		if len(u.copies) == counts[p.topic] {
			co.checkList(u, data.Items)
		}
	}
}

// isOf reports whether an object is of the unit of an event.
func (co *collection) isOf(o *object, e *Event) bool {
	namespace := e.Attribute("namespace")
	return o.informer == e.Attribute("informer") && (namespace == "" || namespace == o.namespace)
}

// endList takes the end of a list in a partition. It returns how many objects of the unit the
// partition has.
func (co *collection) endList(e *Event, p partition) (objects int) {
	co.ends[e.Attribute("informer")] = p.topic
	for key, o := range co.objects {
		switch {
		case !co.isOf(o, e):
		case o.partition.topic != p.topic:
			co.checkTopic(o.informer, o.partition.topic)
		case o.partition != p:
		case o.isStale && !co.isState:
			delete(co.objects, key)
		default:
			objects++
		}
	}
	if version, err := strconv.ParseUint(e.Attribute("resourceversion"), 10, 64); err == nil {
		co.version = max(co.version, version)
	}
	return objects
}

// checkTopic records that an informer has objects in a topic in which its lists do not end: nothing
// says then when all of them were read.
func (co *collection) checkTopic(informer, topic string) {
	if ends, ok := co.ends[informer]; ok && ends != topic {
		co.lacking = fmt.Sprintf("its objects are in topic %s and the ends of its lists in topic %s",
			topic, ends)
	}
}

// checkList looks whether all that was listed was read. From a history the state is known only
// then.
func (co *collection) checkList(u *unit, items int) {
	found, list := 0, ""
	for _, copied := range u.copies {
		if found += copied.objects; list != "" && copied.list != list || !copied.synced {
			return // another partition has not come to the end of this list
		}
		list = copied.list
	}
	if u.isWhole || co.isState || co.lacking != "" {
		return
	}
	if u.isWhole = found >= items; !u.isWhole {
		co.lacking = fmt.Sprintf("its list had %d objects, of which the source has dropped %d", items,
			items-found)
	}
}

// payload returns the object of an event.
func payload(e *Event) ([]byte, error) {
	if len(e.Data()) == 0 {
		return nil, fmt.Errorf("the event has no object: want payload object, change or metadata")
	}
	if e.DataContentType() == "application/merge-patch+json" {
		return nil, fmt.Errorf("the event has a patch: want payload object, change or metadata")
	}
	var form struct {
		Kind   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(e.Data(), &form); err != nil {
		return nil, err
	}
	if form.Kind == "" && len(form.Object) > 0 {
		return form.Object, nil
	}
	return e.Data(), nil
}

// as returns the object, decoded for a scheme; nil for unstructured. It is decoded once.
func (o *object) as(scheme *runtime.Scheme) (runtime.Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if found := o.decoded[scheme]; found != nil {
		return found, nil
	}
	made, err := decode(o.raw, scheme)
	if err != nil {
		return nil, err
	}
	if o.decoded == nil {
		o.decoded = map[*runtime.Scheme]runtime.Object{}
	}
	o.decoded[scheme] = made
	return made, nil
}

func decode(raw []byte, scheme *runtime.Scheme) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	if scheme == nil {
		return u, u.UnmarshalJSON(raw)
	}
	var meta runtime.TypeMeta
	if err := json.Unmarshal(raw, &meta); err != nil {
		return nil, err
	}
	made, err := scheme.New(meta.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(raw, made)
	made.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as typed clients have it
	return made, err
}

// listVersion returns a resourceVersion for a list.
func (co *collection) listVersion() string {
	return strconv.FormatUint(cmp.Or(co.version, 1), 10)
}
