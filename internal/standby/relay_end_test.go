package standby_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/standby"
	"github.com/kubebridge/bridge/internal/testkit"
)

var errEnd = errors.New("the listener ends")

func TestRelayDetach(t *testing.T) {
	t.Run("nothing is settled any more and the room is given back", func(t *testing.T) {
		d := newDesk(1)
		testkit.OK(t, d.Add(t.Context(), d.versions(10)))
		d.Detach(t.Context(), d)
		d.Follow(standby.Unit{Delivered: "10"})
		testkit.OK(t, d.Lead(t.Context()))
		d.want(t, nil, nil)
		if !d.detached {
			t.Error("the publisher was not asked")
		}
		other := newDesk(1)
		other.Relay = standby.NewRelay(standby.RelayConfig{Next: next{other}, Room: d.room, History: other.history})
		testkit.OK(t, other.Add(t.Context(), other.versions(11)))
		if other.Held() != 1 {
			t.Error("there is no room")
		}
	})
	t.Run("what a call that was broken off has given is not settled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(2 * 768) // for two items
			testkit.OK(t, d.Add(t.Context(), d.versions(10)))
			ctx, end := context.WithCancelCause(t.Context())
			added := make(chan error, 1)
			go func() { added <- d.Add(ctx, d.versions(11, 12)) }()
			synctest.Wait()
			if d.Held() != 2 {
				t.Fatalf("it holds %d", d.Held())
			}
			end(errEnd)
			if err := <-added; !errors.Is(err, errEnd) {
				t.Errorf("Add: %v", err)
			}
			d.Detach(t.Context(), d)
			d.Follow(standby.Unit{Delivered: "12"})
			d.want(t, nil, nil)
		})
	})
	t.Run("a hand-over that the publisher holds up ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newDesk(1 << 20)
			d.busy = make(chan struct{})
			testkit.OK(t, d.Add(t.Context(), d.versions(10)))
			led := make(chan error, 1)
			go func() { led <- d.Lead(t.Context()) }()
			synctest.Wait()
			ctx, end := context.WithCancelCause(t.Context())
			added := make(chan error, 1)
			go func() { added <- d.Add(ctx, d.versions(11, 12)) }()
			synctest.Wait()
			end(errEnd)
			if err := <-added; !errors.Is(err, errEnd) {
				t.Errorf("Add: %v", err)
			}
			d.Detach(t.Context(), d)
			testkit.OK(t, <-led)
			d.want(t, nil, nil)
		})
	})
}
