package informer_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// hooked is a Committer with something before each commit; nil for nothing.
type hooked struct {
	changelog.Committer
	before func() error
}

func (h *hooked) Commit() error {
	if h.before != nil {
		if err := h.before(); err != nil {
			return err
		}
	}
	return h.Committer.Commit()
}

func (h *hooked) into(c *informer.StagesConfig) {
	h.Committer = c.Committer
	c.Committer = h
}

// A rewind waits while the disk is full.
func TestRewindOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		var full atomic.Bool
		var tried atomic.Int32
		hook := &hooked{before: func() error {
			if full.Load() {
				tried.Add(1)
				return fmt.Errorf("state directory: %w", statedb.ErrUnavailable)
			}
			return nil
		}}
		r := newRig(t, memory(t), []*outbox{out}, hook.into)
		r.list(initial, "100", "a@95")
		out.wait(t, 2)
		full.Store(true)
		r.list(resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonRewound, From: "100", To: "60"}, "60", "a@40")
		testkit.Eventually(t, "it is tried again", func() bool {
			select {
			case err := <-r.done:
				t.Fatalf("the informer ends: %v", err)
			default:
			}
			return tried.Load() > 1
		})
		full.Store(false)
		testkit.Want(t, out.wait(t, 3), "informer.gap  all/pods/gap/100/60/epoch/1 inferred",
			"resource.updated a ua/40/epoch/1 inferred",
			"informer.synced  all/pods/synced/60/epoch/1")
		r.stop()
	})
}

// What is acked before the commit that writes it is written and trimmed by one batch.
func TestAckBeforeWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		out.setHold(true)
		var began atomic.Pointer[informer.Stages]
		var met atomic.Bool
		hook := &hooked{}
		hook.before = func() error {
			i := began.Load()
			if i == nil || i.Status().Log.DiskBytes == 0 || met.Swap(true) {
				return nil
			}
			out.release()
			return nil
		}
		r := newRig(t, db, []*outbox{out}, spooling, hook.into)
		began.Store(r.informer)
		for n := range 50 {
			r.add(fmt.Sprint("p", n), fmt.Sprint(100+n))
		}
		out.wait(t, 50)
		testkit.Eventually(t, "nothing is on disk any more", func() bool {
			testkit.OK(t, r.committer.Commit())
			first, next, err := r.indexer.Log().Bounds()
			testkit.OK(t, err)
			return met.Load() && first == next && r.informer.Status().Log.DiskBytes == 0
		})
		r.stop()
	})
}

// sized is a pod with about so many bytes.
func sized(t *testing.T, name, version string, bytes int) *resource.Object {
	obj := pod(t, name, version)
	raw := slices.Clone(obj.Raw)
	raw = append(raw[:len(raw)-1], `,"padding":"`+strings.Repeat("abcdefgh", bytes/8)+`"}`...)
	parsed, err := resource.Parse(raw, resource.ParseOptions{Type: pods})
	testkit.OK(t, err)
	return parsed
}

// What is gone is looked up, and so is counted nowhere before it is in the log.
func TestLargeDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutbox()
		r := newRig(t, memory(t), []*outbox{out}, func(c *informer.StagesConfig) { c.ChangeLog.MemoryBytes, c.ChangeLog.SpoolBytes = 1<<20, -1 })
		const objects, size = 120, 256 << 10
		testkit.OK(t, r.fifo.BeginReplace(t.Context(), initial))
		for n := range objects {
			testkit.OK(t, r.fifo.Replace(t.Context(), sized(t, fmt.Sprint("p", n), fmt.Sprint(10+n), size)))
		}
		testkit.OK(t, r.fifo.EndReplace(t.Context(), "500"))
		out.wait(t, objects+1)
		out.setHold(true)
		r.list(expired, "600")
		out.wait(t, 1) // the gap, behind which the rest waits
		var most int
		testkit.Eventually(t, "the log is full", func() bool {
			most = max(most, r.informer.Status().Log.Bytes)
			return most >= 1<<20
		})
		time.Sleep(50 * time.Millisecond) // for what should not come
		if most = max(most, r.informer.Status().Log.Bytes); most > 8<<20 {
			t.Errorf("%d MiB are in a log of 1 MiB", most>>20)
		}
		out.release()
		out.wait(t, objects+1)
		r.stop()
	})
}
