package informer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// impatient is an outbox that may refuse what is tried, and counts what it takes of that.
type impatient struct {
	*outbox
	refuses bool
	tried   int
}

func (o *impatient) TryAdd(items []*publisher.Item) bool {
	if o.refuses {
		return false
	}
	o.tried += len(items)
	return o.outbox.TryAdd(items)
}

// TestStep has the change of an object that is known reach the publisher on the goroutine that has
// read it, where nothing has to be waited for.
func TestStep(t *testing.T) {
	run := func(name string, test func(t *testing.T, r *rig, out *impatient)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := &impatient{outbox: newOutbox()}
				r := newRig(t, memory(t), []*outbox{out.outbox}, func(c *informer.StagesConfig) {
					c.Listeners[0].Publisher = out
				})
				r.list(resource.Relist{Kind: resource.RelistInitial}, "5", "a@1")
				out.wait(t, 2)
				synctest.Wait()
				out.tried = 0
				test(t, r, out)
				out.release()
				r.stop()
			})
		})
	}
	events := func(out *impatient) int {
		out.mu.Lock()
		defer out.mu.Unlock()
		return len(out.lines)
	}
	run("an update and a delete come at once", func(t *testing.T, r *rig, out *impatient) {
		r.update("a", "6")
		time.Sleep(time.Millisecond) // else it is a flood
		r.delete("a", "7")
		if events(out) != 2 || out.tried != 2 {
			t.Errorf("%d events, %d of them tried; want 2 when they were read", events(out), out.tried)
		}
	})
	run("an object that is new waits for its announcement, and its update for it", func(t *testing.T, r *rig, out *impatient) {
		r.add("b", "6")
		r.update("b", "7")
		synctest.Wait()
		testkit.Want(t, out.lines, "resource.added b ub/6", "resource.updated b ub/7")
	})
	run("what the publisher refuses comes by itself, in order", func(t *testing.T, r *rig, out *impatient) {
		out.refuses = true
		r.update("a", "6")
		r.update("a", "7")
		synctest.Wait()
		out.refuses = false
		time.Sleep(time.Millisecond)
		r.update("a", "8")
		testkit.Want(t, out.lines, "resource.updated a ua/6", "resource.updated a ua/7", "resource.updated a ua/8")
		if out.tried != 1 {
			t.Errorf("%d were tried, want the last", out.tried)
		}
	})
	run("a large change is work for its listener, not for who has read it", func(t *testing.T, r *rig, out *impatient) {
		r.grow("a", "6", 100<<10)
		synctest.Wait()
		testkit.Want(t, out.taken(), "resource.updated a ua/6")
		if out.tried != 0 {
			t.Errorf("%d were tried, want none", out.tried)
		}
	})
}

// grow updates an object to one of a size.
func (r *rig) grow(name, version string, size int) {
	raw := slices.Clone(pod(r.t, name, version).Raw)
	raw = append(raw[:len(raw)-1], fmt.Sprintf(`,"spec":%q}`, strings.Repeat("x", size))...)
	obj, err := resource.Parse(raw, resource.ParseOptions{Type: pods})
	testkit.OK(r.t, err)
	testkit.OK(r.t, r.fifo.Update(r.t.Context(), obj))
}

// laborious is a Selector that takes a second for a large object.
type laborious struct{}

func (laborious) Rejects(c *event.Change) (string, error) {
	if len(c.Object.Raw) > 64<<10 {
		time.Sleep(time.Second)
	}
	return "", nil
}

func (laborious) NeedsOld() bool { return false }

// TestBatch has the changes of one batch of the FIFO reach the publisher.
func TestBatch(t *testing.T) {
	t.Run("a change does not wait until a large one behind it is decided", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := newOutbox()
			r := newRig(t, memory(t), []*outbox{out}, func(c *informer.StagesConfig) { c.Selector = laborious{} })
			r.list(resource.Relist{Kind: resource.RelistInitial}, "5", "a@1", "b@2", "c@3")
			out.wait(t, 4)
			synctest.Wait()
			for _, name := range []string{"a", "b"} {
				testkit.OK(t, r.fifo.FIFO.Update(t.Context(), pod(t, name, "6")))
			}
			r.grow("c", "7", 100<<10)
			time.Sleep(time.Millisecond)
			testkit.Want(t, out.taken(), "resource.updated a ua/6", "resource.updated b ub/6")
			testkit.Want(t, out.wait(t, 1), "resource.updated c uc/7")
			r.stop()
		})
	})
	t.Run("a change does not wait until the event of a large one behind it is made", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			out := &reluctant{outbox: newOutbox(), gate: make(chan struct{})}
			r := newRig(t, memory(t), []*outbox{out.outbox}, func(c *informer.StagesConfig) { c.Listeners[0].Publisher = out })
			r.list(resource.Relist{Kind: resource.RelistInitial}, "5", "a@1", "b@2", "c@3", "d@4")
			for range 5 { // the end of the list comes alone
				synctest.Wait()
				select {
				case out.gate <- struct{}{}:
				default:
				}
			}
			out.added = nil
			r.update("a", "6") // its Add is not over before the others are there
			synctest.Wait()
			r.update("a", "7")
			r.update("b", "8")
			r.grow("c", "9", 100<<10)
			r.update("d", "10")
			synctest.Wait()
			close(out.gate)
			synctest.Wait()
			if want := []int{1, 2, 1, 1}; !slices.Equal(out.added, want) {
				t.Errorf("added %v at a time, want %v", out.added, want)
			}
			r.stop()
		})
	})
}

// reluctant is an outbox that takes nothing at once, and whose Add waits at a gate.
type reluctant struct {
	*outbox
	gate  chan struct{}
	added []int // how many items each Add had
}

func (o *reluctant) TryAdd([]*publisher.Item) bool { return false }

func (o *reluctant) Add(ctx context.Context, items []*publisher.Item) error {
	o.added = append(o.added, len(items))
	<-o.gate
	return o.outbox.Add(ctx, items)
}
