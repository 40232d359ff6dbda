package bridge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

var namespaceType = resource.Type{Version: "v1", Resource: "namespaces", Kind: "Namespace"}

// TestNamespaceModel relabels, deletes and makes namespaces, at
// any time: while brokers are unavailable, while no bridge runs, before and after crashes, which
// lose what was not synced. Whoever drops events with an id that he has seen must hold what the
// selected namespaces hold, must have seen the versions of each object in order and without a hole,
// and never two states under one id.
func TestNamespaceModel(t *testing.T) {
	rounds(t, "NamespaceModel", func(t *testing.T, seed uint64) {
		newScoped(t, seed).play(*modelSteps)
	})
}

// scoped is a model with a selection of namespaces.
type scoped struct {
	*model
	namespaces *testkit.Server
	selected   map[string]bool // nil for those that do not exist
	expires    bool            // the cluster forgets versions: there are holes
}

func newScoped(t *testing.T, seed uint64) *scoped {
	s := &scoped{model: newModel(t, seed), namespaces: testkit.NewServer(t, namespaceType), selected: map[string]bool{}}
	s.unit.NamespaceSelector = "env=prod"
	s.expires = s.one(2)
	s.http = &http.Client{Transport: besides{s.namespaces, s.cluster.Server}}
	for i := range 3 {
		s.label(fmt.Sprint("ns", i))
	}
	for i := range s.cluster.names {
		s.cluster.names[i] = resource.MakeKey(fmt.Sprint("ns", i%3), fmt.Sprint("o", i))
	}
	return s
}

// besides sends what is asked of the Namespaces to one server, and all else to another.
type besides struct{ namespaces, others *testkit.Server }

// RoundTrip implements http.RoundTripper.
func (b besides) RoundTrip(r *http.Request) (*http.Response, error) {
	server := b.others
	if r.URL.Path == "/"+namespaceType.CollectionPath("") {
		server = b.namespaces
	}
	return server.HTTP().Transport.RoundTrip(r)
}

// selectNamespaces has a rig select those with env=prod.
func (r *rig) selectNamespaces(namespaces *testkit.Server) {
	client := *r.cfg.Client
	client.HTTP = &http.Client{Transport: besides{namespaces, r.Server}}
	r.cfg.Client = &client
	r.cfg.Units[0].NamespaceSelector = "env=prod"
}

// labelNamespace gives a namespace a label, and makes it where there is none.
func labelNamespace(namespaces *testkit.Server, name, env string) {
	namespaces.Update(resource.Key(name), func(obj map[string]any) {
		obj["metadata"].(map[string]any)["labels"] = map[string]any{"env": env}
	})
}

// label makes a namespace, or changes whether it is selected.
func (s *scoped) label(name string) {
	is := !s.selected[name]
	s.selected[name] = is
	s.note("namespace %s selected: %t", name, is)
	labelNamespace(s.namespaces, name, map[bool]string{true: "prod", false: "lab"}[is])
}

// drop deletes a namespace, as Kubernetes does: its objects first.
func (s *scoped) drop(name string) {
	var keys []resource.Key
	for key := range s.cluster.alive {
		if namespace, _ := key.Split(); namespace == name {
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		s.note("%s", s.cluster.remove(keys...))
	}
	s.note("namespace %s deleted", name)
	s.namespaces.Delete(resource.Key(name))
	delete(s.selected, name)
}

// write changes some objects in namespaces that exist.
func (s *scoped) write() {
	for range 1 + s.rng.IntN(8) {
		key := s.cluster.names[s.rng.IntN(len(s.cluster.names))]
		namespace, _ := key.Split()
		if _, exists := s.selected[namespace]; !exists {
			continue
		}
		if s.cluster.alive[key] != nil && s.one(4) {
			s.note("%s", s.cluster.remove(key))
		} else {
			s.note("%s", s.cluster.put(key))
		}
	}
}

func (s *scoped) play(steps int) {
	defer s.report()
	s.write()
	s.start()
	s.heal() // so that there is a position to resume from
	for range steps {
		s.step()
		if s.one(3) {
			synctest.Wait()
		} else {
			time.Sleep(time.Duration(s.rng.IntN(400)) * time.Millisecond)
		}
	}
	s.heal()
	s.stopLife()
	for _, b := range s.brokers {
		s.judge(b)
	}
	s.nothingMore()
}

// step does one thing at random.
func (s *scoped) step() {
	switch n := s.rng.IntN(100); {
	case n < 45:
		s.write()
	case n < 62:
		s.label(fmt.Sprint("ns", s.rng.IntN(3)))
	case n < 66:
		s.drop(fmt.Sprint("ns", s.rng.IntN(3)))
	case n < 70:
		s.cluster.Streams.Bookmark()
	case n < 74 && s.expires:
		s.note("%s", s.cluster.expire())
		s.cluster.Streams.Cut()
	case n < 76:
		s.note("cut")
		s.cluster.Streams.Cut()
		s.namespaces.Streams.Cut()
	case n < 86:
		s.upset()
	case n < 89:
		time.Sleep(time.Duration(s.rng.IntN(20)) * time.Second)
	case s.life == nil:
		s.start()
	case n < 94:
		s.stopLife()
	default:
		s.crash()
	}
}

// heal waits, beside all else, until the selection has been worked through.
func (s *scoped) heal() {
	s.model.heal()
	time.Sleep(3 * time.Second)
	s.model.heal()
}

// held is what a reader holds of one name.
type held struct {
	uid     string
	alive   bool
	version int64
	mark    string
}

// latest reports whether a sink gets the newest states only.
func (s *scoped) latest(b *testkit.Broker) bool {
	return slices.ContainsFunc(s.unit.Sinks, func(c informer.Binding) bool { return c.Sink == b.Name && c.Latest })
}

// read reads a stream from its beginning, as somebody who drops events with an id that he has seen;
// judge sees each record before it counts. It gives what he holds.
func (s *scoped) read(
	b *testkit.Broker,
	judge func(b *testkit.Broker, rec *testkit.Record, h *held, version int64),
) map[string]*held {
	holds, ids := map[string]*held{}, map[string]string{}
	for _, rec := range b.Records() {
		if rec.Name == "" || rec.Op == event.Synced { // what is in the dead letters was reported there
			continue
		}
		version, mark := number(resource.Version(rec.ResourceVersion)), markOf(s.t, rec.Data)
		what := fmt.Sprint(rec.Op == event.Deleted, " ", rec.PartitionKey, " ", mark)
		if before, again := ids[rec.ID]; again {
			// of a delete that a relist reports, the last state may not be the same
			if before != what && rec.Op != event.Deleted {
				s.t.Errorf("%s: the id was given to %s: %s", b.Name, before, describe(rec))
			}
			if !s.latest(b) { // what a sink with the newest states skips, a crash may bring again, and then what follows too
				continue
			}
		}
		ids[rec.ID] = what
		h := holds[rec.PartitionKey]
		if h == nil {
			h = &held{}
			holds[rec.PartitionKey] = h
		}
		if rec.Op == event.Deleted && h.uid != rec.UID {
			continue // of another life of the name, reported late
		}
		if !s.latest(b) {
			judge(b, rec, h, version)
		}
		h.uid, h.alive, h.version, h.mark = rec.UID, rec.Op != event.Deleted, version, mark
	}
	return holds
}

// judge reads a stream, and compares what its reader holds with what there is.
func (s *scoped) judge(b *testkit.Broker) {
	holds := s.read(b, s.judgeRecord)
	for key, w := range s.cluster.alive {
		namespace, name := key.Split()
		h := holds[strings.Join([]string{s.unit.Type.String(), namespace, name}, "/")]
		switch {
		case s.selected[namespace] && (h == nil || !h.alive || h.mark != w.mark):
			s.t.Errorf("%s: a reader does not hold the last state of %s: %s, but %+v", b.Name, key, w, h)
		case !s.selected[namespace] && h != nil && h.alive:
			s.t.Errorf("%s: a reader still holds %s, which is not selected", b.Name, key)
		}
	}
	s.judgeGone(b, holds)
}

// judgeGone sees that a reader holds nothing that is gone.
func (s *scoped) judgeGone(b *testkit.Broker, holds map[string]*held) {
	for key, h := range holds {
		name := resource.Key(key[strings.IndexByte(key, '/')+1:])
		if h.alive && s.cluster.alive[name] == nil {
			s.t.Errorf("%s: a reader still holds %s, which is gone", b.Name, key)
		}
	}
}

// judgeRecord compares a record with what a reader holds.
func (s *scoped) judgeRecord(b *testkit.Broker, rec *testkit.Record, h *held, version int64) {
	switch {
	case rec.Op == event.Deleted && rec.Cause == "":
		s.t.Errorf("%s: no cause: %s", b.Name, describe(rec))
	case rec.Op == event.Deleted || !h.alive:
		return
	case version <= h.version:
		s.t.Errorf("%s: after version %d: %s", b.Name, h.version, describe(rec))
	}
	if s.expires {
		return
	}
	for _, w := range s.cluster.all {
		key := s.unit.Type.String() + "/" + string(w.key)
		if key == rec.PartitionKey && h.uid == rec.UID && w.uid == rec.UID && w.version > h.version && w.version < version {
			s.t.Errorf("%s: %s was lost before %s", b.Name, w, describe(rec))
		}
	}
}

// markOf is the mark of the write that a payload is of.
func markOf(t *testing.T, data []byte) string {
	var obj struct {
		Spec struct{ Mark string }
	}
	if err := json.Unmarshal(data, &obj); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return obj.Spec.Mark
}
