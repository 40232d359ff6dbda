package bridge_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// recaller is a session of a broker that can be read back.
type recaller struct{ *testkit.Session }

// Position implements sinks.Recaller.
func (r recaller) Position() []byte {
	return binary.AppendUvarint(nil, uint64(len(r.Records())))
}

// ReadBack implements sinks.Recaller. A message that was refused and is not in the dead letters is
// not stored.
func (r recaller) ReadBack(_ context.Context, from []byte, found func(string)) error {
	if c, _ := r.Condition(); c == testkit.Unreachable {
		return testkit.ErrUnreachable
	}
	first, n := binary.Uvarint(from)
	if n <= 0 {
		return nil
	}
	for _, rec := range r.Records()[first:] {
		if !rec.Dead || rec.Acked {
			found(rec.MessageID())
		}
	}
	return nil
}

// TestReadBackModel runs the pipeline through random changes,
// outages, lost answers, crashes and stops. Every broker must hold every change once, in the
// object's order: a change that is reported twice was not recalled, one that is missing was taken
// for another.
func TestReadBackModel(t *testing.T) {
	crashes, recalled := 0, 0
	for round := range testkit.Rounds(*modelRounds, 2) {
		seed := *modelSeed + uint64(round)
		ran := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, seed)
				m.recall = true
				m.noResync()
				m.noLatest()
				m.cluster.SetFeatures(m.features)
				c, r := m.playOnce(*modelSteps)
				crashes, recalled = crashes+c, recalled+r
			})
		})
		if !ran {
			t.Fatalf("to see it again: go test ./internal/bridge -run ReadBackModel -bridge.model.rounds 1 -bridge.model.steps %d -bridge.model.seed %d", *modelSteps, seed)
		}
	}
	t.Logf("%d crashes, %d changes stored without the checkpoint knowing", crashes, recalled)
	if crashes == 0 || recalled == 0 {
		t.Error("nothing was put to the test")
	}
}

// playOnce does what leaves no gap in the stream, and then compares each broker's log with what the
// server did.
func (m *model) playOnce(steps int) (crashes, recalled int) {
	defer m.report()
	for range m.rng.IntN(20) {
		m.note("%s", m.cluster.change())
	}
	m.start()
	isSynced := func(rec *testkit.Record) bool {
		return rec.Type == "dev.kubebridge.informer.synced" && rec.Acked
	}
	for !slices.ContainsFunc(m.brokers[0].Records(), isSynced) {
		time.Sleep(time.Second) // until the first snapshot is done: breaking it off would be a gap
	}
	time.Sleep(3 * time.Second)
	for range steps {
		switch n := m.rng.IntN(100); {
		case n < 60:
			for range 1 + m.rng.IntN(8) {
				m.note("%s", m.cluster.change())
			}
		case n < 65:
			m.cluster.Streams.Cut()
		case n < 68:
			m.cluster.Streams.Bookmark()
		case n < 85:
			m.upset()
		case m.life == nil:
			m.start()
		case n < 88:
			m.stopLife()
		default:
			m.crash()
			crashes++
			recalled += m.stored()
		}
		time.Sleep(time.Duration(m.rng.IntN(400)) * time.Millisecond)
	}
	m.heal()
	m.stopLife()
	for _, b := range m.brokers {
		m.holdsEverythingOnce(b)
	}
	return crashes, recalled
}

// stored is how many changes the brokers hold that the state does not know of.
func (m *model) stored() (n int) {
	db := m.open()
	defer func() { _ = db.Close() }() // nothing was written
	s := m.read(db)
	for _, b := range m.brokers {
		for _, rec := range b.Records() {
			key := resource.MakeKey(rec.Namespace, rec.Name)
			if v := number(resource.Version(rec.ResourceVersion)); rec.Name != "" && v > s.watermark && v > s.known[key].version {
				n++
			}
		}
	}
	return n
}

// holdsEverythingOnce compares a log with what the server did.
func (m *model) holdsEverythingOnce(b *testkit.Broker) {
	seen := map[string]bool{}
	last := map[resource.Key]int64{}
	for _, rec := range b.Records() {
		if rec.Dead || rec.Again || rec.Name == "" {
			continue
		}
		if seen[rec.ID] {
			m.t.Errorf("%s: %s: it is there twice", b.Name, describe(rec))
		}
		seen[rec.ID] = true
		key, version := resource.MakeKey(rec.Namespace, rec.Name), number(resource.Version(rec.ResourceVersion))
		if version < last[key] {
			m.t.Errorf("%s: %s: it comes behind version %d", b.Name, describe(rec), last[key])
		}
		last[key] = version
	}
	for _, rec := range b.Records() {
		if rec.Dead {
			seen[rec.ID] = true
		}
	}
	for _, w := range m.cluster.all {
		id := fmt.Sprintf("%s/%d", w.uid, w.version)
		if w.deleted {
			id = w.uid + "/deleted"
		}
		if !seen[id] && w.version > m.states[0].first(m) {
			m.t.Errorf("%s: missing: %s", b.Name, strings.TrimSpace(w.String()))
		}
	}
}

// first is the version of the first snapshot: what was overwritten before is not reported.
func (s *state) first(m *model) int64 {
	for _, rec := range m.brokers[0].Records() {
		if rec.Type == "dev.kubebridge.informer.synced" {
			return number(resource.Version(rec.ResourceVersion))
		}
	}
	return 0
}
