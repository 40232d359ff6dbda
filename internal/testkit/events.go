package testkit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// EventTypes are the types of the objects that Events is about.
var EventTypes = []resource.Type{
	{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true},
	{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true},
}

// Events are what a bridge sends of so many objects, made by the bridge's own Maker: a first
// snapshot, then for each object an update, another one, and so on up to changes of them, in random
// order. A third of the objects are deleted in the midst and created again under their names.
func Events(t testing.TB, seed uint64, objects, changes int) []event.Event {
	t.Helper()
	s := eventScript{t: t, random: rand.New(rand.NewPCG(seed, 0)), version: 1000, at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	for _, typ := range EventTypes {
		m, err := event.NewMaker(event.MakerConfig{Cluster: "prod", Informer: "workloads", Type: typ})
		OK(t, err)
		s.makers = append(s.makers, m)
	}
	for i := range objects {
		s.objects = append(s.objects, &scriptObject{maker: i % len(s.makers), name: fmt.Sprintf("web-%d", i)})
		s.change(s.objects[i], event.Added, true)
	}
	s.synced()
	left := make([]int, 0, objects*changes)
	for i := range objects {
		for range changes {
			left = append(left, i)
		}
	}
	s.random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	for _, i := range left {
		o := s.objects[i]
		o.changes++
		switch {
		case i%3 != 0 || o.changes < changes/2 || o.changes > changes/2+1:
			s.change(o, event.Updated, false)
		case o.changes == changes/2:
			s.change(o, event.Deleted, false)
		default:
			s.change(o, event.Added, false)
		}
	}
	return s.events
}

type eventScript struct {
	t       testing.TB
	random  *rand.Rand
	makers  []*event.Maker
	objects []*scriptObject
	version int
	at      time.Time
	events  []event.Event
}

type scriptObject struct {
	maker   int
	name    string
	uid     string
	version resource.Version
	changes int
}

// change adds the next event of an object.
func (s *eventScript) change(o *scriptObject, op event.Op, initial bool) {
	s.version += 1 + s.random.IntN(3)
	s.at = s.at.Add(time.Millisecond)
	if op == event.Added {
		o.uid, o.version = fmt.Sprintf("%08x-1234-4321-8000-%012x", s.random.Uint32(), s.random.Uint64()>>16), ""
	}
	typ := EventTypes[o.maker]
	raw := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":"%d","labels":{"app":"web"}},"spec":{"replicas":%d}}`,
		typ.Kind, typ.APIVersion(), o.name, o.uid, s.version, s.random.IntN(100))
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{})
	OK(s.t, err)
	c := event.Change{
		Op: op, Key: resource.Key("shop/" + o.name), Object: obj, UID: o.uid, Version: obj.Version, Before: o.version, Initial: initial, Observed: s.at,
	}
	s.events = append(s.events, s.makers[o.maker].Object(&c))
	o.version = obj.Version
}

// synced adds the ends of the lists.
func (s *eventScript) synced() {
	for i, m := range s.makers {
		items := 0
		for _, o := range s.objects {
			if o.maker == i {
				items++
			}
		}
		s.events = append(s.events, m.Synced(resource.Version(fmt.Sprint(s.version)), event.Listing{Items: items}, event.IDSuffix{}, s.at))
	}
}

// Streams are the watches of a Server that are open.
type Streams struct{ server *Server }

// Count is how many there are.
func (s Streams) Count() int {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return len(s.server.watchers)
}

// Bookmark sends the current version to all open watches that want bookmarks, but to those whose
// initial events are to be ended.
func (s Streams) Bookmark() {
	s.toAll(func() []byte { return s.server.bookmarkFrame(false) },
		func(w *watcher) bool { return w.bookmarks && w.initialEnd == nil })
}

// InitialEnd sends the bookmark that ends the initial events of a WatchList, where
// Features.NoInitialEnd held it back.
func (s Streams) InitialEnd() {
	s.toAll(func() []byte { return s.server.bookmarkFrame(true) },
		func(w *watcher) bool { return w.bookmarks })
}

// Raw sends bytes as they are to all open watches. They are in no history: a later watch does not
// see them.
func (s Streams) Raw(frame string) {
	s.toAll(func() []byte { return []byte(frame) }, func(*watcher) bool { return true })
}

// Error sends an ERROR event to all open watches, and leaves them open.
func (s Streams) Error(status *metav1.Status) {
	s.Raw(string(Frame(watch.Error, mustMarshal(status))))
}

func (s Streams) toAll(frame func() []byte, wants func(*watcher) bool) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	raw := frame()
	for w := range s.server.watchers {
		if wants(w) {
			w.send(raw)
		}
	}
}

// Close ends all open watches in good order, after what they still have to send.
func (s Streams) Close() { s.server.lockedEnd(ending{}) }

// Cut cuts the connections of all open watches.
func (s Streams) Cut() { s.server.lockedEnd(ending{cut: true}) }

func (s *Server) lockedEnd(e ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatchers(e)
}

func (s *Server) endWatchers(e ending) {
	for w := range s.watchers {
		w.ending = &e
		w.notify()
	}
}
