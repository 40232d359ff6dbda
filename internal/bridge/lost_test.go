package bridge_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// losses returns what the stream's gaps report, each with its reason.
func (r *natsRig) losses() (data []string) {
	stream, err := r.js.Stream(r.t.Context(), "K8S")
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	testkit.OK(r.t, err)
	for seq := stream.CachedInfo().State.FirstSeq; seq <= stream.CachedInfo().State.LastSeq; seq++ {
		m, err := stream.GetMsg(r.t.Context(), seq)
		if err == nil && strings.HasSuffix(header(m, "ce-type"), "informer.gap") {
			data = append(data, string(m.Data))
		}
	}
	return data
}

// A stream that somebody deletes or purges says that events are missing, each time. That of another
// sink does not.
func TestStreamLost(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for inspections")
	}
	r, other := newNATSRig(t), newNATSRig(t)
	r.also = []*natsRig{other}
	r.put("web", 10, 0)
	r.run(nil, nil)
	r.await(1)
	for n, do := range []func() error{
		func() error { return r.js.DeleteStream(t.Context(), "K8S") },
		func() error { return r.purge() },
		func() error { return r.purge() },
	} {
		time.Sleep(6 * time.Second) // it is inspected
		testkit.OK(t, do())
		var got []string
		for began := time.Now(); len(got) == 0 && time.Since(began) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
			got = r.losses()
		}
		if len(got) != 1 || !strings.Contains(got[0], `"reason":"lost"`) {
			t.Errorf("after loss %d the gaps are %q", n, got)
		}
	}
	if got := other.losses(); len(got) > 0 {
		t.Errorf("the other sink has the gaps %q", got)
	}
}

func (r *natsRig) purge() error {
	stream, err := r.js.Stream(r.t.Context(), "K8S")
	if err != nil {
		return err
	}
	return stream.Purge(r.t.Context())
}

// losing is a sink whose broker has lost something, once.
type losing struct {
	sinks.Sink
	losses *sinks.Losses
}

func (l losing) Inspect(context.Context) []sinks.Loss { return l.losses.Take() }

// A sink that keeps the newest state is sent all objects again after a loss, and no gap.
func TestViewRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, lost := calmBroker(t, "view"), new(sinks.Losses)
		r := newRig(t, b)
		r.cfg.Sinks[0].Sink, r.cfg.Sinks[0].KeepsNewest = losing{b.Connect(0), lost}, true
		r.Create("shop/p", nil)
		r.start()
		expect(t, b, "added p", "synced")
		lost.Add(sinks.Loss{Destination: "view", Reason: sinks.Recreated, Before: 2})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		expect(t, b, "synced p")
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// An informer that starts after a loss reports it too, if it has sent events before; once.
func TestLossBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		other := testkit.NewServer(t, widgets)
		r.cfg.Client.HTTP = &http.Client{Transport: byPath{other.HTTP().Transport, r.HTTP().Transport}}
		var served atomic.Bool
		r.cfg.PlanInterval = time.Minute
		r.cfg.Planner = func(context.Context) (bridge.Plan, error) {
			plan := bridge.Plan{Units: r.cfg.Units[:1], Unknown: func(t resource.Type) bool { return t == widgets }}
			if served.Load() {
				u := r.cfg.Units[0]
				u.Type = widgets
				plan.Units = append(slices.Clone(plan.Units), u)
				u.Informer = "new"
				plan.Units = append(plan.Units, u)
			}
			return plan, nil
		}
		r.Create("shop/p", nil)
		other.Create("shop/w", nil)
		first := r.cfg.Units
		r.cfg.Units = append(slices.Clone(first), first[0])
		r.cfg.Units[1].Type = widgets
		r.start()
		expect(t, b, "added p", "added w", "synced", "synced")
		_, err := r.end()
		testkit.OK(t, err)

		r.cfg.Units = first
		lost := new(sinks.Losses)
		r.cfg.Sinks[0].Sink = losing{b.Connect(0), lost}
		lost.Add(sinks.Loss{Destination: "sink", Reason: sinks.Purged, Before: 2})
		r.start()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		expect(t, b, "gap inferred")
		served.Store(true)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		expect(t, b, "gap inferred", "added w", "synced") // of the widgets known before, and of the new informer
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		expect(t, b)
		_, err = r.end()
		testkit.OK(t, err)
	})
}
