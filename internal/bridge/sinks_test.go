package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A sink that is unavailable at the start is waited for, and holds up no other.
func TestSinkUnavailableAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, other := calmBroker(t, "late"), calmBroker(t, "other")
		late.Set(testkit.Unreachable)
		r := newRig(t, late, other)
		r.Create("shop/a", nil)
		r.start()
		r.Update("shop/a", nil)
		r.settle()
		expect(t, late)
		expect(t, other, "added a", "synced", "updated a")
		reasons := r.Ready()
		if len(reasons) != 1 || reasons[0].Component != "sink late" || !strings.Contains(reasons[0].Message, "no route") {
			t.Errorf("Ready: %v", reasons)
		}
		late.Set(testkit.Healthy)
		time.Sleep(time.Minute)
		expect(t, late, "added a", "synced", "updated a")
		if reasons := r.Ready(); len(reasons) > 0 {
			t.Errorf("Ready: %v", reasons)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// A sink that stalls holds up neither reading nor another sink.
// A stalled sink costs memory up to the bound, then disk; the watermark continues.
func TestStalledSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled, other := calmBroker(t, "stalled"), calmBroker(t, "other")
		r := newRig(t, stalled, other)
		r.cfg.Units[0].Memory = 64 << 10
		r.start()
		stalled.Set(testkit.Hung)
		want := []string{"synced"}
		for i := range 500 {
			name := fmt.Sprint("pod-", i)
			r.Create(resource.MakeKey("shop", name), func(obj map[string]any) { obj["spec"] = strings.Repeat("x", 1000) })
			want = append(want, "added "+name)
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		r.Streams.Bookmark()
		r.settle()
		expect(t, other, want...)
		s := r.Status().Informers[0]
		if s.Watermark != string(r.Version()) || s.SpoolBytes == 0 || s.LogBytes > 64<<10 || s.QueuedDeltas > 0 {
			t.Errorf("status with a stalled sink: %+v", s)
		}
		stalled.Set(testkit.Healthy)
		time.Sleep(time.Minute)
		r.settle()
		expect(t, stalled, want...)
		if s := r.Status().Informers[0]; s.SpoolBytes != 0 || s.LogChanges != 0 {
			t.Errorf("status when all is sent: %+v", s)
		}
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// broken can't be opened for a reason that only an operator can remove.
type broken struct{ *testkit.Session }

func (broken) Open(context.Context) error {
	time.Sleep(time.Second) // by then there is something to send
	return &sinks.Error{Class: sinks.Refused, Err: errors.New("wrong password: set it in sinks.broken")}
}

// A sink that can never be opened ends the bridge.
func TestUnopenableSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "good")
		r := newRig(t, b)
		r.addSink("broken", broken{calmBroker(t, "broken").Connect(0)})
		for i := range 5000 { // more than a listener has with its publisher
			r.Create(resource.Key(fmt.Sprint("shop/p", i)), nil)
		}
		r.start()
		err := <-r.done
		if strings.Contains(err.Error(), publisher.ErrStopped.Error()) {
			t.Errorf("what follows from it is reported as well: %v", err)
		}
		testkit.OK(t, r.db.Close())
		if !errors.Is(err, bridge.ErrSink) || !strings.Contains(err.Error(), "sink broken") || !strings.Contains(err.Error(), "wrong password") {
			t.Errorf("Run: %v", err)
		}
		if log := r.log.String(); strings.Contains(log, "stopping") {
			t.Error("the log reports a stop in order")
		}
	})
}
