package bridge_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/testkit"
)

// diary is what happened, in order.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) note(entry string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, entry)
}

// service is one that notes what happens, and is ready after a while, or never for a negative one.
type service struct {
	*diary
	after time.Duration
	fails error
}

func (s *service) Run(ctx context.Context) error {
	s.note("service runs")
	defer s.note("service ends")
	if s.fails != nil {
		return s.fails
	}
	<-ctx.Done()
	return nil
}

func (s *service) WaitReady(ctx context.Context) error {
	if s.after < 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(s.after)
	s.note("service is ready")
	return nil
}

// diarist is a sink that notes what happens.
type diarist struct {
	*testkit.Session
	*diary
}

func (d diarist) Open(ctx context.Context) error {
	d.note("sink opens")
	return d.Session.Open(ctx)
}

func (d diarist) Close() error {
	d.note("sink closes")
	return d.Session.Close()
}

// Services are ready before sinks open, and end last.
func TestServiceOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		b := calmBroker(t, "sink")
		r := newRig(t)
		r.addSink(b.Name, diarist{b.Connect(0), d})
		r.cfg.Services = []bridge.Service{&service{diary: d, after: time.Second}}
		r.Create("shop/a", nil)
		r.start()
		expect(t, b, "added a", "synced")
		_, err := r.end()
		testkit.OK(t, err)
		if want := []string{"service runs", "service is ready", "sink opens", "sink closes", "service ends"}; !slices.Equal(d.entries, want) {
			t.Errorf("%q, want %q", d.entries, want)
		}
	})
}

// A stop does not wait for a service that is not ready.
// An embedded broker with a large stream may take minutes to be ready.
func TestServiceStoppedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "sink"))
		r.cfg.Services = []bridge.Service{&service{diary: &diary{}, after: -1}}
		r.start()
		if took, err := r.end(); err != nil || took > time.Second {
			t.Errorf("Run: %v after %v", err, took)
		}
	})
}

// A service that fails ends the bridge.
func TestServiceFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, calmBroker(t, "sink"))
		failure := errors.New("no space left for the stream")
		r.cfg.Services = []bridge.Service{&service{diary: &diary{}, fails: failure}}
		r.start()
		if err := <-r.done; !errors.Is(err, failure) {
			t.Errorf("Run: %v", err)
		}
		testkit.OK(t, r.db.Close())
	})
}
