package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
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
	bucket  bool
	objects map[string]*object
	gone    map[string]string // sequences of deletes, so that a repeat brings nothing back
	units   map[string]*unit
	version uint64 // highest resourceVersion

	complete bool   // it is the state of the cluster at some time
	lacking  string // why it never will be, "" for nothing
	epoch    int    // how often watches had to end
	ring     []change
	begin    uint64 // number of ring[0]
}

// unit is an informer's share of a resource.
type unit struct{ synced, gap bool }

// change is what watches are told.
type change struct {
	op     watch.EventType
	object *object
}

// object in one version.
type object struct {
	subject, informer, namespace, uid, sequence string

	raw     []byte
	isStale bool // told before a gap that forgot everything, and not since

	mu      sync.Mutex
	decoded map[*runtime.Scheme]runtime.Object // guarded by mu
}

func newCollection(bucket bool) *collection {
	co := &collection{bucket: bucket}
	co.reset()
	return co
}

func (co *collection) reset() {
	co.objects, co.gone, co.units = map[string]*object{}, map[string]string{}, map[string]*unit{}
	co.complete, co.lacking = false, ""
	co.expire()
}

// expire ends all watches.
func (co *collection) expire() {
	co.epoch++
	co.begin += uint64(len(co.ring))
	co.ring = nil
}

// settle looks whether the collection has become complete.
func (co *collection) settle() {
	complete := len(co.units) > 0
	for _, u := range co.units {
		complete = complete && u.synced && !u.gap
	}
	if complete && !co.complete {
		co.expire() // what changed meanwhile was told to nobody
	}
	co.complete = complete
}

// apply takes an event of an object.
func (co *collection) apply(e *Event, subject string) error {
	key, sequence := e.key(), e.Attributes["sequence"]
	before := co.objects[key]
	if before != nil && sequence < before.sequence || sequence < co.gone[key] {
		return nil // a repeat of what is known
	}
	if version, err := strconv.ParseUint(e.Attributes["resourceversion"], 10, 64); err == nil {
		co.version = max(co.version, version)
	}
	if e.IsDelete() {
		if len(co.gone) >= maxRing {
			clear(co.gone)
		}
		if !co.bucket {
			co.gone[key] = sequence
		}
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
	now := &object{
		subject: subject, informer: e.Attributes["informer"], namespace: e.Attributes["namespace"],
		uid: e.Attributes["uid"], sequence: sequence, raw: raw,
	}
	co.objects[key] = now
	switch {
	case before == nil:
		co.tell(watch.Added, now)
	case before.uid != now.uid:
		co.tell(watch.Deleted, before)
		co.tell(watch.Added, now)
	case before.sequence != now.sequence:
		co.tell(watch.Modified, now)
	default:
		co.objects[key] = before // nothing has changed
		before.isStale = false
	}
	return nil
}

func (co *collection) remove(key string, o *object) {
	delete(co.objects, key)
	co.tell(watch.Deleted, o)
}

func (co *collection) tell(op watch.EventType, o *object) {
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
func (co *collection) applyAbout(e *Event) {
	name := e.unit()
	u := co.units[name]
	if u == nil {
		u = &unit{}
		co.units[name] = u
	}
	var data struct {
		Reason string
		Items  int
	}
	_ = json.Unmarshal(e.Data, &data) // what it lacks is zero
	switch e.Type {
	case TypeGap:
		if data.Reason == "dropped" {
			return // nothing follows that would end it
		}
		u.gap, co.complete = true, false
		for _, o := range co.objects {
			if data.Reason == "forgotten" && co.isOf(o, e) {
				o.isStale = true
			}
		}
	case TypeSynced:
		co.endList(e, u, data.Items)
	}
}

// isOf reports whether an object is of the unit of an event.
func (co *collection) isOf(o *object, e *Event) bool {
	namespace := e.Attributes["namespace"]
	return o.informer == e.Attributes["informer"] && (namespace == "" || namespace == o.namespace)
}

// endList takes the end of a list. From a stream the state is known only if what was listed is
// there.
func (co *collection) endList(e *Event, u *unit, items int) {
	found := 0
	for key, o := range co.objects {
		if !co.isOf(o, e) {
			continue
		}
		if o.isStale && !co.bucket {
			delete(co.objects, key)
			continue
		}
		found++
	}
	if !co.bucket && !u.synced && found < items {
		co.lacking = fmt.Sprintf("its list had %d objects, of which the stream has dropped %d", items,
			items-found)
	}
	u.synced, u.gap = true, false
	if version, err := strconv.ParseUint(e.Attributes["resourceversion"], 10, 64); err == nil {
		co.version = max(co.version, version)
	}
}

// payload is the object of an event.
func payload(e *Event) ([]byte, error) {
	if len(e.Data) == 0 {
		return nil, fmt.Errorf("the event has no object: want payload object, change or metadata")
	}
	if media := e.Attributes["datacontenttype"]; media == "application/merge-patch+json" {
		return nil, fmt.Errorf("the event has a patch: want payload object, change or metadata")
	}
	var form struct {
		Kind   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(e.Data, &form); err != nil {
		return nil, err
	}
	if form.Kind == "" && len(form.Object) > 0 {
		return form.Object, nil
	}
	return e.Data, nil
}

// as is the object, decoded for a scheme; nil for unstructured. It is decoded once.
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

// listVersion is a resourceVersion for a list.
func (co *collection) listVersion() string {
	return strconv.FormatUint(cmp.Or(co.version, 1), 10)
}
