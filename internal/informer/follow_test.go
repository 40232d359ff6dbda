package informer_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// following lets another replica lead.
func following(c *informer.StagesConfig) { c.Listeners[0].Follows = true }

// delivered reports to the first listener how far the leader is.
func (r *rig) delivered(version resource.Version) {
	r.informer.Follow(0, standby.Unit{Delivered: version}, false)
}

// held is how many entries the leader has not delivered.
func (r *rig) held() int { return r.informer.Status().Listeners[0].Held }

func TestFollow(t *testing.T) {
	for name, options := range map[string][]option{
		"every change": {following}, "the newest states": {following, latest(10)},
		"from disk": {following, spooling},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newOutbox()
				r := newRig(t, memory(t), []*outbox{out}, options...)
				r.list(initial, "10", "a@4")
				r.do("update a 11", "add b 12", "add c 13", "delete a 14")
				r.bookmark("15")
				synctest.Wait()
				if n := r.held(); n == 0 {
					t.Error("nothing is held")
				}
				r.delivered("12")
				synctest.Wait()
				if n := r.held(); n != 2 {
					t.Errorf("%d entries are held, want 2", n)
				}
				r.delivered("13") // the last of this leader: it is applied late
				r.informer.Lead()
				testkit.Want(t, out.wait(t, 1), "resource.deleted a ua/deleted")
				r.add("d", "16")
				testkit.Want(t, out.wait(t, 1), "resource.added d ud/16")
				r.stop()
				if n := len(out.events()); n != 2 {
					t.Errorf("%d events", n)
				}
			})
		})
	}
	t.Run("the watermark follows the leader", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, following)
			r.list(initial, "10", "a@4")
			r.do("update a 11", "update a 12")
			r.bookmark("13")
			synctest.Wait()
			if at := r.position(); at != "" {
				t.Errorf("the watermark is %s", at)
			}
			r.delivered("11")
			synctest.Wait()
			if at := r.position(); at != "11" {
				t.Errorf("the watermark is %s, want 11", at)
			}
			r.informer.Follow(0, standby.Unit{}, true) // the leader has ended the unit
			r.stop()
			if at := r.position(); at != "13" {
				t.Errorf("the watermark is %s at the end", at)
			}
			testkit.Want(t, out.lines)
		})
	})
	t.Run("what was pending in a run before", func(t *testing.T) {
		for name, options := range map[string][]option{
			"every change": {spooling}, "the newest states": {spooling, latest(10)},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db, dead, out := memory(t), newOutbox(), newOutbox()
					dead.setHold(true)
					r := newRig(t, db, []*outbox{dead}, options...)
					r.do("add a 4", "add b 5", "add c 6")
					r.bookmark("7")
					dead.wait(t, 3)
					r.resting(7)
					r.crash()
					r = newRig(t, db, []*outbox{out}, append(options, following)...)
					synctest.Wait()
					if n := r.held(); n != 3 {
						t.Errorf("%d entries are held", n)
					}
					r.delivered("4")
					synctest.Wait()
					r.delivered("5")
					r.informer.Lead()
					testkit.Want(t, out.wait(t, 1), "resource.added c uc/6")
					r.stop()
				})
			})
		}
	})
	t.Run("a backlog takes no memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const last = 6100
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, spooling, following)
			r.flood(100, last)
			r.resting(last)
			if n := r.held(); n != last-100 {
				t.Errorf("%d entries are held", n)
			}
			// The commit that had the last of them on disk may not have returned yet.
			testkit.Eventually(t, "the memory is within its bound",
				func() bool { return r.informer.Status().Log.Bytes <= 64<<10 })
			r.delivered("3000")
			r.informer.Lead()
			testkit.Eventually(t, "the last has come", func() bool { return out.got(last - 1) })
			r.stop()
			if first := out.events()[0]; first.ResourceVersion != "3001" {
				t.Errorf("the first is of version %s", first.ResourceVersion)
			}
			if n := len(out.events()); n != last-3001 {
				t.Errorf("%d events", n)
			}
		})
	})
	t.Run("what was dropped is reported by who leads", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const last = 6100
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, spooling, dropping, following)
			r.flood(100, last)
			r.resting(last)
			r.informer.Lead()
			testkit.Eventually(t, "the last has come", func() bool { return out.got(last - 1) })
			r.stop()
			s := story{t: t, next: 100}
			s.read(out.events())
			if s.next != last || s.dropped == 0 {
				t.Errorf("the stream is %+v", s)
			}
		})
	})
	t.Run("what was dropped and delivered is not reported", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const last = 6100
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, spooling, dropping, following)
			r.flood(100, last)
			r.resting(last)
			r.delivered(resource.Version(fmt.Sprint(last)))
			synctest.Wait()
			r.informer.Lead()
			r.update("a", fmt.Sprint(last+1))
			testkit.Eventually(t, "the next has come", func() bool { return out.got(last + 1) })
			r.stop()
			if n := len(out.events()); n != 1 {
				t.Errorf("%d events", n)
			}
		})
	})
}

// An item that can't be understood may say that another object has the name, and not in which
// version. What it implies has the version of the object that is gone, which another replica may
// have delivered long ago.
func TestFollowItemWithoutVersion(t *testing.T) {
	for _, tt := range []struct {
		version, delivered resource.Version
		isSent             bool
	}{
		{"", "19", true}, {"", "20", false}, // by the list
		{"15", "14", true}, {"15", "15", false},
	} {
		for _, fromDisk := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v, from disk %v", tt, fromDisk), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db, out := memory(t), newOutbox()
					r := newRig(t, db, []*outbox{out}, spooling, following)
					r.list(initial, "10", "a@4")
					r.delivered("10")
					synctest.Wait()
					r.delivered("")
					skipped := resource.Identity{Key: "shop/a", UID: "another", Version: tt.version}
					testkit.OK(t, r.fifo.BeginReplace(t.Context(), expired))
					testkit.OK(t, r.fifo.Skip(t.Context(), skipped))
					testkit.OK(t, r.fifo.EndReplace(t.Context(), "20"))
					testkit.Eventually(t, "it is on disk", func() bool { return r.position() == "20" })
					if fromDisk {
						r.crash()
						r = newRig(t, db, []*outbox{out}, following)
					}
					r.delivered(tt.delivered)
					r.informer.Lead()
					r.stop()
					isDelete := func(e event.Event) bool { return e.Op == event.Deleted }
					if slices.ContainsFunc(out.events(), isDelete) != tt.isSent {
						t.Errorf("it got %v", out.lines)
					}
				})
			})
		}
	}
}
