package informer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/informer/processor"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/testkit"
)

// latest makes the first listener one that is sent the newest states only, with this many events
// with the publisher at once.
func latest(window int) option {
	return func(c *informer.StagesConfig) {
		c.Listeners[0].Latest, c.Listeners[0].Window = true, window
	}
}

// do makes changes such as "add a 2", "delete a 3" and "list 10 a@4 b@5".
func (r *rig) do(changes ...string) {
	r.t.Helper()
	for _, change := range changes {
		words := strings.Fields(change)
		switch words[0] {
		case "add":
			r.add(words[1], words[2])
		case "update":
			r.update(words[1], words[2])
		case "delete":
			r.delete(words[1], words[2])
		case "list":
			r.list(expired, resource.Version(words[1]), words[2:]...)
		case "sync":
			r.resync(words[1])
		}
	}
}

// seen waits until the listeners have been given everything: the log has n changes that are not
// settled by all.
func (r *rig) seen(n int) {
	r.t.Helper()
	testkit.Eventually(r.t, fmt.Sprintf("%d changes wait", n), func() bool { return r.informer.Status().Log.Entries == n })
}

// Of the pending changes of an object, only the newest is sent.
func TestLatestPending(t *testing.T) {
	tests := []struct {
		name    string
		changes []string // while nothing can be sent; "a" is known, at version 1
		want    []string
	}{
		{"several updates are the last", []string{"update a 10", "update a 11", "update a 12"}, []string{"resource.updated a ua/12"}},
		{"a new object is added, in its newest state", []string{"add b 10", "update b 11", "update b 12"}, []string{"resource.added b ub/12"}},
		{"an updated object is deleted", []string{"update a 10", "delete a 11"}, []string{"resource.deleted a ua/deleted"}},
		{
			"an object that came and went is deleted: a run before may have sent it",
			[]string{"add b 10", "update b 11", "delete b 12"},
			[]string{"resource.deleted b ub/deleted"},
		},
		{
			"a delete comes before another life of the name",
			[]string{"update a 10", "delete a 11", "add a#2 12", "update a#2 13"},
			[]string{"resource.deleted a ua/deleted", "resource.added a ua2/13"},
		},
		{
			"each life's delete is reported",
			[]string{"delete a 10", "add a#2 11", "delete a#2 12", "add a#3 13"},
			[]string{"resource.deleted a ua/deleted", "resource.deleted a ua2/deleted", "resource.added a ua3/13"},
		},
		{
			"an object that left a selector and came back is deleted and added",
			[]string{"delete a 10", "add a 11", "update a 12"},
			[]string{"resource.deleted a ua/deleted", "resource.added a ua/12"},
		},
		{
			"nothing collapses across a gap and its list",
			[]string{"update a 10", "list 30 a@20", "update a 31", "update a 32"},
			[]string{
				"resource.updated a ua/10", "informer.gap  all/pods/gap/3/20 inferred", "resource.updated a ua/20 inferred",
				"resource.deleted z uz/deleted inferred", "informer.synced  all/pods/synced/30", "resource.updated a ua/32",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, all := newOutbox(), newOutbox()
				r := newRig(t, memory(t), []*outbox{out, all}, latest(1))
				r.do("add a 1")
				out.wait(t, 1)
				out.setHold(true)
				r.do("add z 2") // it alone is with the publisher
				out.wait(t, 1)
				all.wait(t, 2)
				r.do(tt.changes...)
				history := all.wait(t, len(tt.changes))
				synctest.Wait() // it has read everything
				out.release()
				r.stop()
				testkit.Want(t, out.taken(), tt.want...)
				if n := len(history) + len(all.taken()); n < len(tt.changes) {
					t.Errorf("a listener with history was sent %d of %d changes", n, len(tt.changes))
				}
				if s := r.informer.Status(); s.Log.Entries != 0 || r.informer.Log().Status().Unsettled != 0 {
					t.Errorf("not everything is settled: %+v, %+v", s, r.informer.Log().Status())
				}
			})
		})
	}
}

// A resync is not sent beside a change.
func TestLatestResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, all := newOutbox(), newOutbox()
		r := newRig(t, memory(t), []*outbox{out, all}, latest(1))
		r.do("add a 1", "add b 2", "add c 3")
		out.wait(t, 3)
		out.setHold(true)
		r.do("update z 4")
		out.wait(t, 1)
		all.wait(t, 4)
		for n, change := range []string{"update a 10", "sync a", "sync b", "sync c", "update b 11", "sync c"} {
			r.do(change, fmt.Sprint("update y ", 20+n)) // when that has come, all before it has
			all.wait(t, 1+strings.Count(change, "update"))
		}
		synctest.Wait() // it has read everything
		out.release()
		r.stop()
		testkit.Want(t, out.taken(), "resource.updated a ua/10", "resource.added y uy/25",
			"resource.updated b ub/11", "resource.synced c uc/3/sync/0")
	})
}

// An event in flight holds back only its object.
func TestLatestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, all := newOutbox(), newOutbox()
		r := newRig(t, memory(t), []*outbox{out, all}, latest(10))
		out.setHold(true)
		r.do("add a 1")
		testkit.Want(t, out.wait(t, 1), "resource.added a ua/1")
		r.do("update a 2", "update a 3", "add b 4")
		testkit.Want(t, out.wait(t, 1), "resource.added b ub/4")
		r.do("update a 5")
		all.wait(t, 5)
		synctest.Wait() // it has read everything
		out.release()
		r.stop()
		testkit.Want(t, out.taken(), "resource.updated a ua/5")
	})
}

// The old object is the one that the listener was sent last.
func TestLatestOldObject(t *testing.T) {
	maker, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: pods, Payload: event.PayloadChange})
	testkit.OK(t, err)
	for _, where := range []string{"memory", "disk"} {
		t.Run("in "+where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				options := []option{latest(1), func(c *informer.StagesConfig) { c.Listeners[0].Maker = maker }}
				if where == "disk" {
					options = append(options, waiting(20*time.Millisecond), func(c *informer.StagesConfig) { c.ChangeLog.MemoryBytes = 1 })
				}
				out, all := newOutbox(), newOutbox()
				r := newRig(t, memory(t), []*outbox{out, all}, options...)
				r.do("add a 1")
				out.wait(t, 1)
				out.setHold(true)
				r.do("add z 2")
				out.wait(t, 1)
				all.wait(t, 2)
				r.do("update a 10", "update a 11", "add b 12", "update b 13", "update a 14")
				all.wait(t, 5) // when that has come, the other listener has read it too
				if where == "disk" {
					testkit.Eventually(t, "all is on disk", func() bool { return r.informer.Status().Log.Entries == 0 })
				}
				synctest.Wait() // it has read everything
				out.release()
				r.stop()
				testkit.Want(t, out.taken(), "resource.updated a ua/14", "resource.added b ub/13")
				data := fmt.Sprintf(`{"object":%s,"old":%s,"patch":`, pod(t, "a", "14").Raw, pod(t, "a", "1").Raw)
				if got := string(out.raw[2].Data); !strings.HasPrefix(got, data) {
					t.Errorf("a change to 14 after 1 is %s", got)
				}
				if got, data := string(out.raw[3].Data), fmt.Sprintf(`{"object":%s}`, pod(t, "b", "13").Raw); got != data {
					t.Errorf("a new object is %s", got)
				}
			})
		})
	}
}

// churn makes n changes of some objects, new ones among them, and gives what a listener that waits
// for all of it is sent.
func (r *rig) churn(from, n, objects int) (lines []string) {
	for v := from; v < from+n; v++ {
		r.update(fmt.Sprint("p", v%objects), fmt.Sprint(v))
	}
	for v := from + n - objects; v < from+n; v++ {
		lines = append(lines, fmt.Sprintf("resource.added p%d up%d/%d", v%objects, v%objects, v))
	}
	slices.Sort(lines)
	return lines
}

// Changes on disk collapse too, also after a crash.
func TestLatestOnDisk(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := memory(t)
				out, all := newOutbox(), newOutbox()
				r := newRig(t, db, []*outbox{out, all}, spooling, latest(1))
				out.setHold(true)
				all.setHold(true)
				r.do("add z 1")
				out.wait(t, 1)
				lines := r.churn(100, 3000, 10)
				r.bookmark("5000")
				testkit.Eventually(t, "everything is on disk", func() bool {
					testkit.OK(t, r.committer.Commit())
					return r.informer.Log().Status().Watermark == "5000"
				})
				if crash {
					out, all = newOutbox(), newOutbox()
					r = newRig(t, db, []*outbox{out, all}, spooling, latest(1))
					lines = append(lines, "resource.added z uz/1")
				} else {
					all.taken()
					out.release()
					all.release()
				}
				r.stop()
				got := out.taken()
				slices.Sort(got)
				testkit.Want(t, got, lines...)
				if n := len(all.taken()); n < 3000-100 { // some were with the outbox before
					t.Errorf("the listener with history was sent %d", n)
				}
				if s := r.informer.Status(); s.Log.DiskBytes != 0 {
					t.Errorf("%d bytes are left on disk", s.Log.DiskBytes)
				}
			})
		})
	}
}

// After a crash, an object that was never sent is still added.
func TestLatestNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		out := newOutbox()
		r := newRig(t, db, []*outbox{out}, latest(1))
		out.setHold(true)
		r.do("add z 1")
		out.wait(t, 1)
		r.do("add a 2", "update a 3", "update a 4", "update a 5")
		r.seen(3) // z, and of a the first and the last
		testkit.OK(t, r.committer.Commit())
		// The process dies.
		after := newOutbox()
		r = newRig(t, db, []*outbox{after}, latest(1))
		r.do("add z 1", "add a 2", "update a 3", "update a 4", "update a 5", "update a 6")
		r.stop()
		got := after.taken()
		if first := slices.IndexFunc(got, func(line string) bool { return strings.Contains(line, " a ") }); !strings.HasPrefix(got[first], "resource.added a") {
			t.Errorf("events %q", got)
		}
		if got[len(got)-1] != "resource.updated a ua/6" && got[len(got)-1] != "resource.added a ua/6" {
			t.Errorf("events %q", got)
		}
	})
}

// What is read ahead is bounded.
func TestReadAheadBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects = 500
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out}, spooling, latest(1), func(c *informer.StagesConfig) { c.Listeners[0].Ahead = 50 })
		out.setHold(true)
		r.do("add z 1")
		out.wait(t, 1)
		r.churn(1000, objects*4, objects)
		r.bookmark("9000")
		testkit.Eventually(t, "the watermark passes what lies on disk", func() bool {
			testkit.OK(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "9000"
		})
		out.release()
		r.stop()
		got := out.taken()
		if len(got) < objects || len(got) > objects*4 {
			t.Errorf("%d events of %d objects", len(got), objects)
		}
		newest := map[string]string{}
		for n, line := range got {
			name := strings.Fields(line)[1]
			if (newest[name] == "") != strings.HasPrefix(line, "resource.added") {
				t.Fatalf("event %d is %s, after %q", n, line, newest[name])
			}
			newest[name] = strings.Fields(line)[2]
		}
		for v := 1000 + 3*objects; v < 1000+4*objects; v++ {
			if name := fmt.Sprint("p", v%objects); newest[name] != fmt.Sprintf("u%s/%d", name, v) {
				t.Errorf("%s ends with %s", name, newest[name])
			}
		}
	})
}

// The oldest change is not dropped under a listener that has read ahead.
func TestLatestReadAheadDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		ix, err := db.Indexer(store.IndexerConfig{Name: "all/pods", Type: pods})
		testkit.OK(t, err)
		r := newRig(t, memory(t), []*outbox{newOutbox()})
		defer r.stop()
		maker, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: pods})
		testkit.OK(t, err)
		_, err = informer.NewStages(informer.StagesConfig{
			Name: "all/pods", Type: pods, FIFO: r.fifo, Indexer: ix, Committer: r.committer, ChangeLog: changelog.Config{DropOldest: true},
			Listeners: []informer.ListenerConfig{{
				Config: processor.Config{Name: "sink", Publisher: newOutbox(), Maker: maker, Latest: true},
			}},
		})
		if err == nil || !strings.Contains(err.Error(), "the oldest can't be dropped") {
			t.Errorf("New: %v", err)
		}
	})
}

// onlyB lets through what is of pod "b".
type onlyB struct{}

func (onlyB) Rejects(c *event.Change) (string, error) {
	if c.Key == "shop/b" {
		return "", nil
	}
	return "filter", nil
}

func (onlyB) NeedsOld() bool { return false }

// What an earlier run dropped is reported to sinks that now get the newest states.
func TestLatestEarlierDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory(t)
		filtered := func(c *informer.StagesConfig) { c.Listeners[1].Selector = onlyB{} }
		newest := func(c *informer.StagesConfig) { c.Listeners[0].Latest, c.Listeners[1].Latest = true, true }
		before := []*outbox{newOutbox(), newOutbox()}
		before[0].setHold(true)
		before[1].setHold(true)
		r := newRig(t, db, before, spooling, dropping, filtered)
		r.do("add b 50")
		before[1].wait(t, 1)
		r.flood(100, 4100)
		r.resting(4100)
		// The process dies. One sink has lost much, the other nothing.
		after := []*outbox{newOutbox(), newOutbox()}
		r = newRig(t, db, after, spooling, filtered, newest)
		r.do("update b 5000")
		r.stop()
		got := after[0].taken()
		if len(got) < 3 || !strings.HasPrefix(got[0], "informer.gap") || !slices.Contains(got, "resource.updated a ua/4099") || len(got) > 100 {
			t.Errorf("the sink that has lost something got %q", got)
		}
		if got := after[1].taken(); got[len(got)-1] != "resource.updated b ub/5000" {
			t.Errorf("the other got %q", got)
		}
	})
}

// demanding is an outbox of a publisher that can be paused.
type demanding struct {
	*outbox
	items   int
	changed chan struct{}
}

func (d *demanding) Demand() (int, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.items, d.changed
}

func (d *demanding) set(items int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.items, d.changed = items, make(chan struct{})
}

func TestDemand(t *testing.T) {
	begin := func(t *testing.T, items int) (*demanding, *rig) {
		d := &demanding{outbox: newOutbox(), items: items, changed: make(chan struct{})}
		r := newRig(t, memory(t), []*outbox{d.outbox}, latest(100), func(c *informer.StagesConfig) { c.Listeners[0].Publisher = d })
		return d, r
	}
	t.Run("while a sink is paused nothing is handed over, and then the newest state", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, r := begin(t, 0)
			r.do("add a 10", "update a 11")
			synctest.Wait()
			r.do("update a 12", "add b 13", "update b 14")
			synctest.Wait()
			testkit.Want(t, d.taken())
			d.set(100)
			synctest.Wait()
			testkit.Want(t, d.taken(), "resource.added a ua/12", "resource.added b ub/14")
			r.stop()
		})
	})
	t.Run("while a broker is unavailable one event is handed over to try with", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, r := begin(t, 1)
			d.setHold(true)
			r.do("add a 10")
			synctest.Wait()
			r.do("add b 11", "update a 12", "update b 13")
			synctest.Wait()
			testkit.Want(t, d.taken(), "resource.added a ua/10")
			d.release()
			d.set(100)
			synctest.Wait()
			testkit.Want(t, d.taken(), "resource.added b ub/13", "resource.updated a ua/12")
			r.stop()
		})
	})
}
