package bridge_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
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
