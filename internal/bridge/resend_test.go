package bridge_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestResend(t *testing.T) {
	again := func(name, version string) *event.Event {
		return &event.Event{
			ID: name + "/" + version, Source: "/clusters/test", Type: "dev.kubebridge.resource.updated",
			Op: event.Updated, ObjectAttributes: event.ObjectAttributes{Name: name}, PartitionKey: "pods//" + name, Data: []byte(`{}`),
		}
	}
	with := func(t *testing.T, name string, test func(t *testing.T, r *rig, b *testkit.Broker)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker(t, "lake")
				r := newRig(t, b)
				r.start()
				b.Next()
				test(t, r, b)
				_, err := r.end()
				testkit.OK(t, err)
			})
		})
	}
	with(t, "events are stored in their order, and each has its answer", func(t *testing.T, r *rig, b *testkit.Broker) {
		resent, err := r.Resend(t.Context(), "lake", []*event.Event{again("a", "1"), again("a", "2"), again("b", "7")}, false)
		testkit.OK(t, err)
		for i, answer := range resent {
			if answer.Outcome != publisher.Acknowledged {
				t.Errorf("event %d: %+v", i, answer)
			}
		}
		records := b.Next()
		at := map[string]int{}
		for i, rec := range records {
			at[rec.ID] = i + 1
		}
		if len(records) != 3 || at["a/1"] > at["a/2"] {
			t.Errorf("stored at %v", at)
		}
	})
	with(t, "an unknown sink and a paused one are refused", func(t *testing.T, r *rig, _ *testkit.Broker) {
		if _, err := r.Resend(t.Context(), "other", nil, false); !errors.Is(err, bridge.ErrUnknown) {
			t.Error(err)
		}
		testkit.OK(t, r.PauseSink(t.Context(), "lake", "a test"))
		if _, err := r.Resend(t.Context(), "lake", nil, false); !errors.Is(err, bridge.ErrSinkNotReady) {
			t.Error(err)
		}
	})
	t.Run("a sink that keeps the newest state is sent nothing old", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, calmBroker(t, "view"))
			r.cfg.Sinks[0].KeepsNewest = true
			r.start()
			if _, err := r.Resend(t.Context(), "view", []*event.Event{again("a", "1")}, false); !errors.Is(err, bridge.ErrKeepsNewest) {
				t.Error(err)
			}
			_, err := r.end()
			testkit.OK(t, err)
		})
	})
	t.Run("what has no answer in time is nobody's, and the bridge ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := calmBroker(t, "lake")
			r := newRig(t, b)
			r.start()
			b.Set(testkit.Hung)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			resent, err := r.Resend(ctx, "lake", []*event.Event{again("a", "1")}, false)
			if err != nil || len(resent) != 1 || resent[0].Outcome != "" {
				t.Errorf("%+v, %v", resent, err)
			}
			b.Set(testkit.Healthy)
			_, err = r.end()
			testkit.OK(t, err)
		})
	})
}

// What is found out later about a change comes behind it: when the sink has acknowledged it, also
// one that was read by a process before.
func TestFollowUp(t *testing.T) {
	about := func(informer string, version resource.Version) *event.Event {
		return &event.Event{
			ID: "a/" + string(version) + event.AttributedSuffix, Source: "/clusters/test", Type: event.TypeAttributed, Op: event.Attributed,
			ObjectAttributes: event.ObjectAttributes{Resource: "pods", Name: "a", ResourceVersion: string(version)},
			Informer:         informer, PartitionKey: "pods//a", Data: []byte(`{}`), Observed: time.Now(),
		}
	}
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "lake")
		r := newRig(t, b)
		r.start()
		isSettled := func(e *event.Event) bool {
			t.Helper()
			settled, err := r.FollowUp(t.Context(), "lake", []*event.Event{e})
			testkit.OK(t, err)
			if settled[0] != nil {
				settled[0]()
			}
			return settled[0] != nil
		}
		gone := about("another", "1")
		if isSettled(gone) {
			t.Error("its informer may come back")
		}
		gone.Observed = time.Now().Add(-time.Hour)
		if !isSettled(gone) {
			t.Error("nothing of the informer comes, and that is waited for")
		}
		first := r.Update(key(1), func(map[string]any) {})
		e := about("all", first)
		r.settle()
		if isSettled(e) { // what was read is known from one call to the next
			t.Error("it is not known yet whether the change was read")
		}
		if r.settle(); !isSettled(e) {
			t.Error("the sink has the change")
		}
		b.Set(testkit.Hung)
		second := r.Update(key(1), func(map[string]any) {})
		r.settle()
		e = about("all", second)
		for range 3 {
			if r.settle(); isSettled(e) {
				t.Error("the sink does not have the change yet")
			}
		}
		b.Set(testkit.Healthy)
		for range 10 {
			time.Sleep(10 * time.Second)
			if isSettled(e) {
				break
			}
		}
		var at []string
		for _, rec := range b.Next() {
			if rec.Acked && rec.ResourceVersion == string(second) {
				at = append(at, string(rec.Op))
			}
		}
		if !slices.Equal(at, []string{"updated", "attributed"}) {
			t.Errorf("stored are %v", at)
		}
		_, err := r.end()
		testkit.OK(t, err)
		third := about("all", r.Update(key(1), func(map[string]any) {})) // as a process before has read it
		r.start()
		b.Set(testkit.Hung)
		if isSettled(third) {
			t.Error("the change was not read again yet, or is with the sink")
		}
		b.Set(testkit.Healthy)
		_, err = r.end()
		testkit.OK(t, err)
	})
}
