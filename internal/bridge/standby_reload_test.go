package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// reloadPair is a pair whose configuration changes while it runs. Both begin with one informer,
// "all", and the sink "sink".
type reloadPair struct {
	*pair
	unit informer.Config
}

func newReloadPair(t *testing.T) *reloadPair {
	p := &reloadPair{pair: newPair(t)}
	p.unit = p.cfg.Units[0]
	for _, r := range []*rig{p.rig, p.second} {
		r.cfg.Standby.Version = "1"
	}
	return p
}

// begin starts both and waits until the second could take over.
func (p *reloadPair) begin() {
	p.t.Helper()
	p.start()
	p.second.start()
	p.step()
}

// step waits until the second replica is in sync with the first.
func (p *reloadPair) step() {
	p.t.Helper()
	p.awaits("the second replica is in sync", func() bool {
		p.Streams.Bookmark()
		return p.second.Status().Standby.InSync
	})
}

// becomes is a change of the configuration in which the one informer is another.
func (p *reloadPair) becomes(version string, unit informer.Config, sinks ...bridge.SinkConfig) *bridge.Change {
	return &bridge.Change{
		Version: version, Informers: []string{"all"}, Changed: []string{"all"}, Units: []informer.Config{unit},
		Sinks: append(keep("sink"), sinks...),
	}
}

// reload changes one of the two.
func (p *reloadPair) reload(r *rig, c *bridge.Change) bridge.Changes {
	p.t.Helper()
	done, err := r.Reconfigure(p.t.Context(), c)
	testkit.OK(p.t, err)
	p.settle()
	return done
}

// inOrder fails when a version of an object comes for the first time behind a later one.
func inOrder(t *testing.T, b *testkit.Broker) {
	t.Helper()
	last, seen := map[string]string{}, map[string]bool{}
	for _, rec := range b.Records() {
		if !rec.Acked || rec.Name == "" || seen[rec.ID] {
			continue
		}
		seen[rec.ID] = true
		if rec.Sequence < last[rec.Name] {
			t.Errorf("%s: %s @%s comes behind @%s", b.Name, rec.Name, rec.Sequence, last[rec.Name])
		}
		last[rec.Name] = rec.Sequence
	}
}

// with gives the unit one sink more.
func (p *reloadPair) with(sink string) informer.Config {
	unit := p.unit
	unit.Sinks = []informer.Binding{{Sink: "sink"}, {Sink: sink}}
	return unit
}

func (p *reloadPair) metadata() informer.Config {
	unit := p.unit
	unit.Sinks = []informer.Binding{{Sink: "sink", Payload: event.PayloadMetadata}}
	return unit
}

// Each replica takes a changed configuration when it sees it. Whichever is first, and whichever
// leads in between, nothing is missing, nothing comes twice, and no list is asked for.
func TestStandbyReload(t *testing.T) {
	for name, dies := range map[string]string{
		"and the leader lives on":           "",
		"and the leader dies before both":   "before",
		"and the leader dies between them":  "between",
		"and the leader dies when both did": "after",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newReloadPair(t)
				p.Create("shop/a", nil)
				p.begin()
				expect(t, p.broker, "added a", "synced")
				lists, want := p.lists(), []string{}
				write := func() {
					p.Update("shop/a", nil)
					want = append(want, "updated a")
				}
				dead := false
				at := func(when string) {
					write()
					if dies != when {
						return
					}
					p.broker.Set(testkit.Hung) // what comes now only the second can send
					write()
					p.settle()
					p.die()
					p.broker.Set(testkit.Healthy)
					p.takesOver()
					dead = true
					write()
				}
				at("before")
				if !dead {
					if done := p.reload(p.rig, p.becomes("2", p.metadata())); done.UnitsRestarted != 1 {
						t.Errorf("the leader: %v", done)
					}
				}
				at("between")
				if done := p.reload(p.second, p.becomes("2", p.metadata())); done.UnitsRestarted != 1 {
					t.Errorf("the standby: %v", done)
				}
				at("after")
				p.settle()
				p.Streams.Bookmark()
				p.settle()
				expect(t, p.broker, want...)
				inOrder(t, p.broker)
				if n := p.lists() - lists; n > 0 {
					t.Errorf("%d lists", n)
				}
				if !dead {
					p.step()
					_, err := p.end()
					testkit.OK(t, err)
				}
				p.endSecond()
			})
		})
	}
}

// A standby that restarts an informer keeps what the leader has not sent.
// The standby's backlog is kept when its informer begins again, and sent if it has to be.
func TestStandbyReloadBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReloadPair(t)
		p.begin()
		expect(t, p.broker, "synced")
		p.broker.Set(testkit.Unreachable)
		const objects = 30
		for i := range objects {
			p.Create(key(i), nil)
			if i%10 == 5 {
				version := fmt.Sprint("v", i)
				p.reload(p.rig, p.becomes(version, p.metadata()))
				p.reload(p.second, p.becomes(version, p.metadata()))
			}
		}
		p.settle()
		if held := p.second.Status().Standby.Held; held != objects {
			t.Errorf("the standby holds %d events, want %d", held, objects)
		}
		p.die()
		p.broker.Set(testkit.Healthy)
		p.takesOver()
		time.Sleep(time.Minute)
		p.settle()
		stored := map[string]bool{} // some without an answer, while the broker was unavailable
		for _, rec := range p.broker.Records() {
			stored[rec.Name] = true
		}
		for i := range objects {
			if _, name := key(i).Split(); !stored[name] {
				t.Errorf("%s was not sent", name)
			}
		}
		p.endSecond()
	})
}

// A sink that is new gets everything from when the leader has it, also from a replica that has it
// later, and when the leader dies then.
func TestStandbyReloadNewSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReloadPair(t)
		p.Create("shop/a", nil)
		p.begin()
		more := calmBroker(t, "more")
		sinkOf := func(i int) bridge.SinkConfig { return bridge.SinkConfig{Name: "more", Sink: recaller{more.Connect(i)}} }
		p.reload(p.rig, p.becomes("2", p.with("more"), sinkOf(0)))
		p.Update("shop/a", nil)
		p.settle()
		expect(t, more, "updated a")
		p.reload(p.second, p.becomes("2", p.with("more"), sinkOf(1)))
		p.step()
		p.Update("shop/a", nil)
		p.Create("shop/b", nil)
		p.settle()
		expect(t, more, "updated a", "added b")
		p.die()
		p.Update("shop/a", nil)
		p.takesOver()
		p.settle()
		expect(t, more, "updated a")
		expect(t, p.broker, "synced", "added a", "updated a", "updated a", "added b", "updated a")
		p.endSecond()
	})
}

// A replica that has to publish before it has the new sink leaves a hole there. It reports it when
// it has the sink, and sends what there is.
func TestStandbyReloadSinkGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReloadPair(t)
		p.Create("shop/a", nil)
		p.Create("shop/b", nil)
		p.begin()
		more := calmBroker(t, "more")
		p.reload(p.rig, p.becomes("2", p.with("more"), bridge.SinkConfig{Name: "more", Sink: more.Connect(0)}))
		p.Update("shop/a", nil)
		p.settle()
		expect(t, more, "updated a")
		p.die()
		p.takesOver()
		p.Update("shop/a", nil) // more does not get it
		p.settle()
		p.reload(p.second, p.becomes("2", p.with("more"), bridge.SinkConfig{Name: "more", Sink: more.Connect(1)}))
		p.Delete("shop/b")
		p.settle()
		expect(t, more, "gap inferred", "synced", "synced a", "synced b", "deleted b")
		p.endSecond()
	})
}

// A sink that the leader does not feed any more is not missing anything if its successor still has
// it.
func TestStandbyReloadOldSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReloadPair(t)
		more := calmBroker(t, "more")
		for i, r := range []*rig{p.rig, p.second} {
			r.addSink("more", more.Connect(i))
		}
		p.unit = p.cfg.Units[0]
		p.Create("shop/a", nil)
		p.begin()
		expect(t, more, "added a", "synced")
		fewer := p.unit
		fewer.Sinks = fewer.Sinks[:1]
		p.reload(p.rig, p.becomes("2", fewer))
		p.Update("shop/a", nil)
		p.settle()
		p.Streams.Bookmark()
		p.settle()
		expect(t, more)
		p.die()
		p.takesOver()
		expect(t, more, "updated a")
		p.reload(p.second, p.becomes("2", fewer))
		p.Update("shop/a", nil)
		p.settle()
		expect(t, more)
		expect(t, p.broker, "synced", "added a", "updated a", "updated a")
		p.endSecond()
	})
}

// Replicas with different selections do not settle by each other.
// What the leader has delivered of one selection says nothing of another.
func TestStandbyReloadSelections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReloadPair(t)
		p.unit.FieldSelector = "metadata.name!=b"
		for _, r := range []*rig{p.rig, p.second} {
			r.cfg.Units[0].FieldSelector = p.unit.FieldSelector
		}
		p.Create("shop/a", nil)
		p.Create("shop/b", nil)
		p.begin()
		expect(t, p.broker, "added a", "synced")
		all := p.unit
		all.FieldSelector = ""
		p.reload(p.rig, p.becomes("2", all))
		expect(t, p.broker, "gap inferred", "added b", "synced")
		p.Update("shop/a", nil)
		p.Update("shop/b", nil)
		p.settle()
		expect(t, p.broker, "updated a", "updated b")
		if behind := fmt.Sprint(p.second.Status().Standby.Behind); !strings.Contains(behind, "another configuration") {
			t.Errorf("the standby is behind for %s", behind)
		}
		p.reload(p.second, p.becomes("2", all))
		p.step()
		p.die()
		p.Update("shop/b", nil)
		p.takesOver()
		expect(t, p.broker, "updated b")
		inOrder(t, p.broker)
		p.endSecond()
	})
}

// A selection that is wider holds objects that are older than what was delivered of the narrower
// one: a leader that dies before it has sent them has delivered nothing of it.
func TestStandbyReloadWider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReloadPair(t)
		p.unit.FieldSelector = "metadata.name!=b"
		for _, r := range []*rig{p.rig, p.second} {
			r.cfg.Units[0].FieldSelector = p.unit.FieldSelector
		}
		p.Create("shop/a", nil)
		p.Create("shop/b", nil)
		p.begin()
		p.Update("shop/a", nil)
		p.settle()
		p.Streams.Bookmark()
		p.settle()
		p.settle() // reported, and read by the standby
		expect(t, p.broker, "added a", "synced", "updated a")
		p.broker.Set(testkit.Hung)
		all := p.unit
		all.FieldSelector = ""
		p.reload(p.rig, p.becomes("2", all))
		p.reload(p.second, p.becomes("2", all))
		time.Sleep(20 * time.Second)
		p.die()
		p.broker.Set(testkit.Healthy)
		p.takesOver()
		expect(t, p.broker, "gap inferred", "added b", "synced")
		p.endSecond()
	})
}

// A standby that sees the file first waits for the leader, for a while: what is new begins at the
// leader.
func TestStandbyReloadOrder(t *testing.T) {
	for name, c := range map[string]struct {
		leader func(*reloadPair)
		within time.Duration
	}{
		"which takes it":   {func(p *reloadPair) { p.reload(p.rig, p.becomes("2", p.metadata())) }, 40 * time.Second},
		"which dies":       {func(p *reloadPair) { p.die() }, 60 * time.Second},
		"which refuses it": {func(*reloadPair) {}, 125 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newReloadPair(t)
				p.begin()
				began, done := time.Now(), make(chan error, 1)
				go func() {
					_, err := p.second.Reconfigure(t.Context(), p.becomes("2", p.metadata()))
					done <- err
				}()
				time.Sleep(30 * time.Second)
				select {
				case err := <-done:
					t.Fatalf("it did not wait: %v", err)
				default:
				}
				c.leader(p)
				testkit.OK(t, <-done)
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %v", took)
				}
				p.Create("shop/a", nil)
				p.settle()
				expect(t, p.broker, "synced", "added a")
				if name != "which dies" {
					_, err := p.end()
					testkit.OK(t, err)
					p.takesOver()
				}
				p.endSecond()
			})
		})
	}
}

// An informer that is new begins at the leader; the standby lists when the leader has it, and can
// take over when the leader has passed that list.
func TestStandbyReloadInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReloadPair(t)
		p.Create("shop/a", nil)
		p.begin()
		expect(t, p.broker, "added a", "synced")
		other := p.unit
		other.Informer = "other"
		two := &bridge.Change{Version: "2", Informers: []string{"all", "other"}, Changed: []string{"other"}, Units: []informer.Config{p.unit, other}, Sinks: keep("sink")}
		for _, r := range []*rig{p.rig, p.second} {
			if done := p.reload(r, two); done.UnitsStarted != 1 || done.UnitsRestarted != 0 {
				t.Errorf("%v", done)
			}
		}
		expect(t, p.broker, "added a", "synced")
		p.step()
		one := &bridge.Change{Version: "3", Informers: []string{"other"}, Units: []informer.Config{other}, Sinks: keep("sink")}
		p.reload(p.rig, one)
		p.Update("shop/a", nil)
		p.settle()
		expect(t, p.broker, "updated a")
		p.reload(p.second, one)
		p.step()
		p.settle()
		p.die()
		p.Delete("shop/a")
		p.takesOver()
		expect(t, p.broker, "deleted a")
		p.endSecond()
	})
}
