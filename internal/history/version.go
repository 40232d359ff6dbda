package history

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// highestStored is the highest era of a unit with a stored version, and the highest version stored
// in it. A version beyond it is new and the newest of its object, so Append does not search the
// disk. Most events are beyond it.
type highestStored struct {
	era     uint32
	version uint64
}

// isBeyond reports whether a version is beyond all that are stored of a unit.
func (b *batch) isBeyond(u *record.Unit, seq keys.Sequence) (bool, error) {
	r, err := b.reachedOf(u)
	if err != nil {
		return false, err
	}
	isNumber := seq.IsNumber() && seq.Entered == 0
	return seq.Era > r.era || seq.Era == r.era && isNumber && seq.Version > r.version, nil
}

// highestOf reads what is stored of a unit.
func (db *database) highestOf(u *record.Unit) (r highestStored, err error) {
	const era = 4
	value, err := db.get(keys.Reached(u.Number))
	switch {
	case err != nil:
		return r, err
	case len(value) == era+8:
		r = highestStored{binary.BigEndian.Uint32(value), binary.BigEndian.Uint64(value[era:])}
	case value != nil:
		return r, record.ErrUnreadable
	}
	return r, nil
}

func (b *batch) reachedOf(u *record.Unit) (r highestStored, err error) {
	r, known := b.w.reached[u.Number]
	if known {
		return r, nil
	}
	if r, err = b.db.highestOf(u); err != nil {
		return r, err
	}
	if b.w.reached == nil {
		b.w.reached = map[uint32]highestStored{}
	}
	b.w.reached[u.Number] = r
	return r, nil
}

// reach notes that a version is stored.
func (b *batch) reach(u *record.Unit, seq keys.Sequence) error {
	r, err := b.reachedOf(u)
	if err != nil {
		return err
	}
	to := highestStored{seq.Era, seq.Version}
	if !seq.IsNumber() || seq.Entered > 0 {
		to.version = math.MaxUint64 // it lies behind all numbers of the era
	}
	if to.era < r.era || to.era == r.era && to.version <= r.version {
		return nil
	}
	b.w.reached[u.Number] = to
	if !slices.Contains(b.reached, u) {
		b.reached = append(b.reached, u)
	}
	return nil
}

func (b *batch) storeReached() error {
	for _, u := range b.reached {
		r := b.w.reached[u.Number]
		value := binary.BigEndian.AppendUint32(nil, r.era)
		value = binary.BigEndian.AppendUint64(value, r.version)
		if err := b.Set(keys.Reached(u.Number), value, nil); err != nil {
			return err
		}
	}
	return nil
}

// newestKey has the newest time that the API server gave a change. The timeline can't say it: its
// entries also have times at which a bridge observed a change, by a clock that may have been wrong.
var newestKey = keys.Meta("newest")

// Newest returns the newest time that the API server gave a change, in seconds. Zero: none is
// known.
func (m Maintenance) Newest() (time.Time, error) {
	second, err := m.db.newest()
	if err != nil || second == 0 {
		return time.Time{}, m.db.ReadError(err)
	}
	return time.Unix(int64(second), 0), nil
}

func (db *database) newest() (uint32, error) {
	value, err := db.get(newestKey)
	switch {
	case err != nil || value == nil:
		return 0, err
	case len(value) != 4:
		return 0, record.ErrUnreadable
	}
	return binary.BigEndian.Uint32(value), nil
}

// storeNewest stores the newest time that the API server gave one of the events, where that is
// later than the one that is known.
func (b *batch) storeNewest(events []*event.Event) error {
	newest := uint32(0)
	for _, e := range events {
		if e.TimeSource == event.TimeManagedFields {
			newest = max(newest, keys.Seconds(e.Time))
		}
	}
	if newest == 0 {
		return nil
	}
	if known, err := b.db.newest(); err != nil || newest <= known {
		return err
	}
	return b.Set(newestKey, binary.BigEndian.AppendUint32(nil, newest), nil)
}

// dataOf returns what is stored of an event's data: of a payload with two objects the newer one,
// and of a merge patch the object, where the version that it is to is known.
func (b *batch) dataOf(
	u *record.Unit, e *event.Event, last *lastVersion, seq keys.Sequence,
) ([]byte, error) {
	switch {
	case len(e.Data) == 0:
		return nil, nil
	case e.DataType == event.MergePatchContentType:
		base, err := b.previous(u, e, last, seq)
		if err != nil || base == nil {
			return e.Data, err
		}
		return diff.Apply(base, e.Data), nil
	case bytes.HasPrefix(e.Data, []byte(`{"before":`)):
		if object, ok := event.DebeziumObject(e.Data); ok {
			return object, nil
		}
	case bytes.HasPrefix(e.Data, []byte(`{"object":`)):
		object := diff.Field(e.Data, "object")
		if jsontree.Parse(object).IsObject() && diff.Field(e.Data, "metadata") == nil {
			return object, nil
		}
	}
	return e.Data, nil
}

// previous returns the object in the version before an event's, nil where it is not known.
func (b *batch) previous(
	u *record.Unit, e *event.Event, last *lastVersion, seq keys.Sequence,
) ([]byte, error) {
	before := keys.NewSequence(seq.Era, e.Previous, false)
	if e.Previous == "" || before.Compare(seq) > 0 {
		return nil, nil
	}
	if last != nil && last.seq == before {
		if last.form != record.FormObject {
			return nil, nil
		}
		return last.objectJSON(), nil
	}
	v, err := query.StoredVersion(b.db,
		&query.Object{Unit: u, Namespace: e.Namespace, Name: e.Name}, before)
	if err != nil || v == nil || v.Form() != record.FormObject {
		return nil, err
	}
	return v.Event.Data, nil
}

// lastVersion is the newest version of an object, which the next one is stored as a difference to.
type lastVersion struct {
	object string // prefix of its keys
	seq    keys.Sequence
	text   []byte
	// data is how many bytes at the end of text are the object. shape and form are its.
	data  int
	shape diff.Shape
	form  record.Form
	// deltas is how many follow each other up to this one.
	deltas   int
	alive    lifeEntry
	deleteID string // id of the event, of a delete
}

func (v *lastVersion) size() int {
	const overhead = 250 // of the entry, its key twice and the list
	return len(v.text) + 2*len(v.object) + len(v.deleteID) + v.shape.Size() + overhead
}

func (v *lastVersion) objectJSON() []byte { return v.text[len(v.text)-v.data:] }

// lastVersions keeps those of the objects that changed last, within a number of bytes. An object
// that is not in it is stored whole: to read its last version would cost six times as much.
type lastVersions struct {
	max, size int
	order     list.List // of *lastVersion, the newest in front
	of        map[string]*list.Element
}

func (c *lastVersions) get(object []byte) *lastVersion {
	e := c.of[string(object)]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*lastVersion)
}

// put sets the last version of an object. It keeps the text, but of a delete: nothing is stored as
// a difference to one, and what has gone must not take the place of what lives. It returns a text
// that it keeps no longer.
func (c *lastVersions) put(v lastVersion) (spare []byte) {
	if v.seq.Deleted {
		spare, v.text, v.data, v.shape = v.text, nil, 0, nil
	}
	if e := c.of[v.object]; e != nil {
		was := e.Value.(*lastVersion)
		if spare == nil {
			spare = was.text
		}
		c.size += v.size() - was.size()
		*was = v
		c.order.MoveToFront(e)
		return spare
	}
	if c.of == nil {
		c.of = map[string]*list.Element{}
	}
	c.of[v.object] = c.order.PushFront(&v)
	c.size += v.size()
	return spare
}

// shrink drops the oldest until the rest is within the bound. It is called between batches: what a
// batch has stored of an object stays in memory until the batch is in the database.
func (c *lastVersions) shrink() {
	for c.size > c.max && c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}

func (c *lastVersions) drop(e *list.Element) {
	v := c.order.Remove(e).(*lastVersion)
	delete(c.of, v.object)
	c.size -= v.size()
}

// clear forgets everything, after a batch that was not committed.
func (c *lastVersions) clear() {
	c.order.Init()
	clear(c.of)
	c.size = 0
}

type unitName struct{ source, informer, resource, group string }

func nameOf(u *record.Unit) unitName {
	return unitName{u.Source, u.Informer, u.Resource, u.Group}
}

// units are all that are known.
type units struct {
	mu       sync.RWMutex // guards what follows
	byName   map[unitName]*record.Unit
	byNumber map[uint32]*record.Unit
	sources  map[string]uint32
	next     uint32 // number of the next unit
	// kinds are those that objects of a unit had after its Kind: a CustomResourceDefinition that
	// comes again may give its resource another one.
	kinds map[*record.Unit][]string
}

type storedUnit struct {
	*record.Unit
	LaterKinds []string `json:"laterKinds,omitempty"`
}

func newUnits() units {
	return units{
		byName: map[unitName]*record.Unit{}, byNumber: map[uint32]*record.Unit{},
		sources: map[string]uint32{}, next: 1, kinds: map[*record.Unit][]string{},
	}
}

func (us *units) add(u *record.Unit) {
	us.byName[nameOf(u)], us.byNumber[u.Number] = u, u
	us.sources[u.Source] = u.SourceNumber
	us.next = max(us.next, u.Number+1)
}

// unitOf returns the unit of an event; isNew is set for one that has to be stored, since it or its
// kind is new.
func (us *units) unitOf(e *event.Event) (u *record.Unit, isNew bool) {
	name := unitName{e.Source, e.Informer, e.Resource, e.Group}
	us.mu.RLock()
	u = us.byName[name]
	isKnown := u != nil && (e.Kind == u.Kind || e.Kind == "" || e.AboutInformer() ||
		slices.Contains(us.kinds[u], e.Kind))
	us.mu.RUnlock()
	if isKnown {
		return u, false
	}
	us.mu.Lock()
	defer us.mu.Unlock()
	if u != nil {
		us.kinds[u] = append(us.kinds[u], e.Kind)
		return u, true
	}
	source, known := us.sources[e.Source]
	if !known {
		source = uint32(len(us.sources)) + 1
	}
	u = &record.Unit{
		Number: us.next, SourceNumber: source, Source: e.Source,
		Informer: e.Informer, Resource: e.Resource, Group: e.Group, Kind: e.Kind,
	}
	us.add(u)
	return u, true
}

// kindsOf returns the kinds of a unit's objects, the newest last.
func (us *units) kindsOf(u *record.Unit) []string {
	us.mu.RLock()
	defer us.mu.RUnlock()
	return append([]string{u.Kind}, us.kinds[u]...)
}

// stored returns the value of a unit.
func (us *units) stored(u *record.Unit) ([]byte, error) {
	return json.Marshal(storedUnit{u, us.kindsOf(u)[1:]})
}

func (us *units) numbered(number uint32) *record.Unit {
	us.mu.RLock()
	defer us.mu.RUnlock()
	return us.byNumber[number]
}

func (us *units) all() []*record.Unit {
	us.mu.RLock()
	defer us.mu.RUnlock()
	return slices.SortedFunc(maps.Values(us.byNumber),
		func(a, b *record.Unit) int { return int(a.Number) - int(b.Number) })
}

// load reads the units that are stored.
func (us *units) load(db *pebble.DB) error {
	us.mu.Lock()
	defer us.mu.Unlock()
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{keys.SpaceUnit},
		UpperBound: []byte{keys.SpaceUnit + 1},
	})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		u := storedUnit{Unit: new(record.Unit)}
		if err := json.Unmarshal(it.Value(), &u); err != nil || u.Number == 0 {
			return fmt.Errorf("the entry of a unit can't be read: %w", record.ErrUnreadable)
		}
		us.add(u.Unit)
		if len(u.LaterKinds) > 0 {
			us.kinds[u.Unit] = u.LaterKinds
		}
	}
	return it.Error()
}
