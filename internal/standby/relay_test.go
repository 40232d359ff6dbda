package standby_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/standby"
	"github.com/kubebridge/bridge/internal/testkit"
)

// desk has a relay between a listener and a publisher that note what they get.
type desk struct {
	*standby.Relay
	room *standby.Room

	mu      sync.Mutex
	settled []string // guarded by mu
	passed  []string // guarded by mu
	from    resource.Version
	epoch   int
	whole   bool
	busy    chan struct{} // the publisher takes nothing until it is closed; nil when it does

	detached bool // guarded by mu
}

func newDesk(room int) *desk {
	d := &desk{room: standby.NewRoom(room), from: "1", whole: true}
	d.Relay = standby.NewRelay(standby.RelayConfig{Next: next{d}, Room: d.room, History: d.history})
	return d
}

func (d *desk) history() (from resource.Version, epoch int, whole bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.from, d.epoch, d.whole
}

// Settle is the listener's.
func (d *desk) Settle(items []*publisher.Item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range items {
		d.settled = append(d.settled, it.Message.Event.ID)
	}
}

// desk as the publisher.
type next struct{ *desk }

func (n next) Add(ctx context.Context, items []*publisher.Item) error {
	if n.busy != nil {
		select {
		case <-n.busy:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, it := range items {
		n.passed = append(n.passed, it.Message.Event.ID)
	}
	return nil
}

// TryAdd takes what Add would not wait with.
func (n next) TryAdd(items []*publisher.Item) bool {
	return n.busy == nil && n.Add(context.Background(), items) == nil
}

// Detach gives everything back at once.
func (n next) Detach(_ context.Context, s publisher.Settler) []*publisher.Item {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.detached = s == publisher.Settler(n.desk)
	return nil
}

func (d *desk) item(id string, cover publisher.Cover) *publisher.Item {
	return &publisher.Item{Message: sinks.Message{Event: &event.Event{ID: id}}, Settler: d, Cover: cover}
}

// versions are items of changes at versions.
func (d *desk) versions(versions ...int) (items []*publisher.Item) {
	for _, v := range versions {
		items = append(items, d.item(fmt.Sprint(v), publisher.Cover{Version: resource.Version(fmt.Sprint(v)), Epoch: d.epoch}))
	}
	return items
}

func (d *desk) want(t *testing.T, settled, passed []string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.settled, settled) || !slices.Equal(d.passed, passed) {
		t.Errorf("settled %v, passed on %v; want %v and %v", d.settled, d.passed, settled, passed)
	}
}

func TestARelaySettlesWhatTheLeaderHasDeliveredAndHandsOnTheRest(t *testing.T) {
	d := newDesk(1 << 20)
	testkit.OK(t, d.Add(t.Context(), d.versions(10, 11, 12)))
	d.want(t, nil, nil)
	d.Follow(standby.Unit{Delivered: "11"})
	d.want(t, []string{"10", "11"}, nil)
	testkit.OK(t, d.Add(t.Context(), d.versions(11, 13))) // one that comes late
	d.want(t, []string{"10", "11", "11"}, nil)
	d.Follow(standby.Unit{Delivered: "12"}) // the last that the leader has told
	testkit.OK(t, d.Lead(t.Context()))
	testkit.OK(t, d.Add(t.Context(), d.versions(12, 14)))
	d.want(t, []string{"10", "11", "11", "12", "12"}, []string{"13", "14"})
	testkit.OK(t, d.Lead(t.Context()))
}

func TestTryAdd(t *testing.T) {
	d := newDesk(1 << 20)
	try := func(want bool, versions ...int) {
		t.Helper()
		if got := d.TryAdd(d.versions(versions...)); got != want {
			t.Errorf("TryAdd of %v is %v, want %v", versions, got, want)
		}
	}
	d.Follow(standby.Unit{Delivered: "11"})
	try(false, 12) // it does not lead
	testkit.OK(t, d.Lead(t.Context()))
	try(false, 11, 12) // the leader before has delivered one of them
	try(true, 12, 13)
	d.want(t, nil, []string{"12", "13"})
}

func TestARelaySettlesNothingThatTheProgressSaysNothingAbout(t *testing.T) {
	d := newDesk(1 << 20)
	testkit.OK(t, d.Add(t.Context(), append(d.versions(10), d.item("of another epoch", publisher.Cover{Version: "8", Epoch: 1}), d.item("unordered", publisher.Cover{Version: "x"}))))
	d.Follow(standby.Unit{})
	d.Follow(standby.Unit{Delivered: "9"})
	d.Follow(standby.Unit{Delivered: "7", Epoch: 1})
	// In its new epoch the leader has delivered what was before.
	d.want(t, []string{"10", "unordered"}, nil)
}

func TestWhatIsAboutAListIsSettledWhenItsEndIsCovered(t *testing.T) {
	d := newDesk(1 << 20)
	d.whole = false
	testkit.OK(t, d.Add(t.Context(), []*publisher.Item{d.item("gap", publisher.Cover{Version: "20", OfList: true})}))
	d.Follow(standby.Unit{Delivered: "24"})
	d.want(t, nil, nil)
	d.whole, d.from = true, "25"
	d.Look()
	d.want(t, nil, nil)
	d.Follow(standby.Unit{Delivered: "25"})
	d.want(t, []string{"gap"}, nil)
}

func TestWhatRepeatsIsTheLeadersMatter(t *testing.T) {
	d := newDesk(1 << 20)
	sync := func(id string) []*publisher.Item {
		return []*publisher.Item{d.item(id, publisher.Cover{Version: "5", Repeats: true})}
	}
	testkit.OK(t, d.Add(t.Context(), sync("first")))
	d.want(t, []string{"first"}, nil)
	d.Follow(standby.Unit{Delivered: "10"})
	testkit.OK(t, d.Lead(t.Context()))
	testkit.OK(t, d.Add(t.Context(), sync("second")))
	d.want(t, []string{"first"}, []string{"second"})
}

func TestAFullRoomHoldsTheListenerUntilThereIsNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(1) // for one item
		added := make(chan error, 1)
		go func() { added <- d.Add(t.Context(), d.versions(10, 11, 12, 13)) }()
		synctest.Wait()
		if d.Held() != 1 {
			t.Fatalf("it holds %d", d.Held())
		}
		d.Follow(standby.Unit{Delivered: "11"})
		synctest.Wait()
		d.want(t, []string{"10", "11"}, nil)
		if d.Held() != 1 {
			t.Fatalf("it holds %d", d.Held())
		}
		testkit.OK(t, d.Lead(t.Context()))
		testkit.OK(t, <-added)
		d.want(t, []string{"10", "11"}, []string{"12", "13"})
	})
}
