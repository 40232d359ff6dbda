package standby_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/standby"
)

var errEnd = errors.New("the listener ends")

func TestWhatACallThatIsBrokenOffHasGivenIsTheCallersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(2 * 768) // for two items
		ok(t, d.Add(t.Context(), d.versions(10)))
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
		d.Follow(standby.Unit{Delivered: "12"})
		d.want(t, []string{"10"}, nil)
		ok(t, d.Add(t.Context(), d.versions(20, 21))) // there is room again
	})
}

func TestARelayThatIsClosedSettlesNothingAndGivesItsRoomBack(t *testing.T) {
	d := newDesk(1)
	ok(t, d.Add(t.Context(), d.versions(10)))
	d.Close()
	d.Follow(standby.Unit{Delivered: "10"})
	ok(t, d.Lead(t.Context()))
	d.want(t, nil, nil)
	other := newDesk(1)
	other.Relay = standby.NewRelay(standby.RelayConfig{Next: next{other}, Room: d.room, History: other.history})
	ok(t, other.Add(t.Context(), other.versions(11)))
	if other.Held() != 1 {
		t.Error("there is no room")
	}
}

// What waits behind a hand-over that the publisher holds up follows it: the listener may end meanwhile, and can't take it back.
func TestAListenerThatEndsDuringAHandOverLeavesItsItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1 << 20)
		d.busy = make(chan struct{})
		ok(t, d.Add(t.Context(), d.versions(10)))
		led := make(chan error, 1)
		go func() { led <- d.Lead(t.Context()) }()
		synctest.Wait()
		ctx, end := context.WithCancelCause(t.Context())
		added := make(chan error, 1)
		go func() { added <- d.Add(ctx, d.versions(11, 12)) }()
		synctest.Wait()
		end(errEnd)
		ok(t, <-added)
		d.want(t, nil, nil)
		close(d.busy)
		ok(t, <-led)
		ok(t, d.Add(t.Context(), d.versions(13)))
		d.want(t, nil, []string{"10", "11", "12", "13"})
	})
}
