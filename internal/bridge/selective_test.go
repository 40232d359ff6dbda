package bridge_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestFilterModel runs sinks with filters of their own through outages,
// stops and crashes, in a cluster that forgets nothing. In the end each sink must have every change
// that its filters let through and no other, in order, with the version before it as old object;
// although a change that one sink waits for may be followed by one that it does not want.
func TestFilterModel(t *testing.T) {
	rounds(t, "FilterModel", func(t *testing.T, seed uint64) {
		newSelective(t, seed).play(*modelSteps)
	})
}

// selective is a model without gaps and with filters: a change is let through by the last digit of
// its version.
type selective struct {
	*model
	all     string            // digits that the informer lets through
	digits  map[string]string // by sink: digits that it wants
	changed []*write          // from when the bridge follows
}

func newSelective(t *testing.T, seed uint64) *selective {
	s := &selective{model: newModel(t, seed), digits: map[string]string{}, all: "012345689"}
	s.noLatest()
	s.noResync()
	s.unit.Filter.Expression = byDigit(t, s.all)
	if s.one(2) {
		s.unit.Filter, s.all = filter.Rules{}, "0123456789"
	}
	for i := range s.unit.Sinks {
		b := &s.unit.Sinks[i]
		b.Payload = event.PayloadChange
		if s.digits[b.Sink] = pick(s.model, "0123456789", "02468", "13579", "1", "012345678"); len(s.digits[b.Sink]) < 10 {
			b.Filter.Expression = byDigit(t, s.digits[b.Sink])
		}
	}
	return s
}

func byDigit(t *testing.T, digits string) *filter.Expression {
	e, err := filter.Compile(fmt.Sprintf("meta.resourceVersion.matches('[%s]$')", digits))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (s *selective) play(steps int) {
	defer s.report()
	s.start()
	s.cluster.put(s.cluster.names[0])
	s.heal() // so that there is a position to resume from
	from := len(s.cluster.all)
	for range steps {
		switch n := s.rng.IntN(100); {
		case n < 60:
			for range 1 + s.rng.IntN(8) {
				s.note("%s", s.cluster.change())
			}
		case n < 64:
			s.note("%s", s.cluster.removeSome())
		case n < 70:
			s.cluster.Streams.Bookmark()
		case n < 88:
			s.upset()
		case n < 91:
			time.Sleep(time.Duration(s.rng.IntN(20)) * time.Second)
		case s.life == nil:
			s.start()
		case n < 95:
			s.stopLife()
		default:
			s.crash()
		}
		if s.one(3) {
			synctest.Wait()
		} else {
			time.Sleep(time.Duration(s.rng.IntN(400)) * time.Millisecond)
		}
	}
	s.heal()
	s.stopLife()
	s.changed = s.cluster.all[from:]
	for _, b := range s.brokers {
		s.judge(b)
	}
}

// judge compares what a broker has with what it should have.
func (s *selective) judge(b *testkit.Broker) {
	lets := func(version int64) bool {
		last := fmt.Sprint(version % 10)
		return strings.Contains(s.digits[b.Name], last) && strings.Contains(s.all, last)
	}
	before := map[int64]int64{} // the version before an update, by version and object
	latest := map[resource.Key]*write{}
	wanted := map[string]*write{}
	for _, w := range s.cluster.all {
		if last := latest[w.key]; last != nil && !last.deleted && !w.deleted {
			before[w.version] = last.version
		}
		latest[w.key] = w
	}
	for _, w := range s.changed {
		if lets(w.version) {
			wanted[idOf(w)] = w
		}
	}
	reported, last := map[string]bool{}, map[string]int64{}
	for _, rec := range b.Records() {
		version := number(resource.Version(rec.ResourceVersion))
		if rec.Name == "" || reported[rec.ID] || len(s.changed) == 0 || version < s.changed[0].version {
			continue
		}
		reported[rec.ID] = true
		if !lets(version) {
			s.t.Errorf("%s: its filter does not let it through: %s", b.Name, describe(rec))
		}
		if version <= last[rec.PartitionKey] {
			s.t.Errorf("%s: after version %d: %s", b.Name, last[rec.PartitionKey], describe(rec))
		}
		last[rec.PartitionKey] = version
		if got := oldVersion(s.t, rec); rec.Op == event.Updated && got != before[version] {
			s.t.Errorf("%s: the old object is of version %d, not %d: %s", b.Name, got, before[version], describe(rec))
		}
	}
	for id, w := range wanted {
		if !reported[id] {
			s.t.Errorf("%s (digits %s) never got %s", b.Name, s.digits[b.Name], w)
		}
	}
}

func idOf(w *write) string {
	if w.deleted {
		return w.uid + "/deleted"
	}
	return fmt.Sprintf("%s/%d", w.uid, w.version)
}

// oldVersion is the version of the old object in a payload, 0 when there is none.
func oldVersion(t *testing.T, rec *testkit.Record) int64 {
	var data struct {
		Old struct {
			Metadata struct{ ResourceVersion resource.Version }
		}
	}
	if err := json.Unmarshal(rec.Data, &data); err != nil {
		t.Fatalf("%s: %v: %s", describe(rec), err, rec.Data)
	}
	return number(data.Old.Metadata.ResourceVersion)
}
