package standby_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// candidate is a process that takes part in an election.
type candidate struct {
	*standby.Lease
	board  *standby.ProgressLease
	client *testkit.LeaseClient
	stop   context.CancelFunc
	done   chan error
}

// campaign has a process take part. Its durations are the defaults.
func campaign(t *testing.T, server *testkit.Leases, identity string) *candidate {
	t.Helper()
	return campaignIf(t, server, identity, nil)
}

// campaignIf has a process take part that gives way to others while it is unsynced.
func campaignIf(
	t *testing.T, server *testkit.Leases, identity string, unsynced func() string,
) *candidate {
	t.Helper()
	c := &candidate{client: server.Client(), done: make(chan error, 1)}
	cfg := standby.LeaseConfig{
		Client: c.client, Namespace: "tools", Name: "bridge", Identity: identity,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	var err error
	c.Lease, err = standby.NewLease(cfg)
	testkit.OK(t, err)
	c.Defer(unsynced)
	c.board = standby.NewProgressLease(cfg)
	var ctx context.Context
	ctx, c.stop = context.WithCancel(t.Context())
	go func() { c.done <- c.Run(ctx) }()
	synctest.Wait()
	return c
}

// put writes on the board.
func (c *candidate) put(p *standby.Progress) error {
	_, err := c.board.Put(context.Background(), p)
	return err
}

func (c *candidate) leads() bool {
	select {
	case <-c.Elected():
		return true
	default:
		return false
	}
}

// A leader that can't renew its lease stops before another begins.
func TestLeaseNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewLeases()
		first := campaign(t, server, "first")
		time.Sleep(10 * time.Millisecond)
		second := campaign(t, server, "second")
		defer second.stop()
		if !first.leads() || second.leads() || first.Gate() != nil || second.Gate() == nil {
			t.Fatalf("first: %v, second: %v", first.Gate(), second.Gate())
		}
		time.Sleep(time.Minute)
		if first.Gate() != nil || second.Leader() != "first" {
			t.Fatalf("first: %v; the second sees %q lead", first.Gate(), second.Leader())
		}
		first.client.Cut(true)
		cut := time.Now()
		var shut, took time.Duration
		for took == 0 {
			time.Sleep(10 * time.Millisecond)
			open, other := first.Gate() == nil, second.Gate() == nil
			if open && other {
				t.Fatal("both may publish")
			}
			if !open && shut == 0 {
				shut = time.Since(cut)
			}
			if other {
				took = time.Since(cut)
			}
		}
		if shut > 10*time.Second || took < 14*time.Second ||
			took > 17*time.Second+500*time.Millisecond {
			t.Errorf("the first was shut after %v, the second led after %v", shut, took)
		}
		if err := <-first.done; !errors.Is(err, standby.ErrLost) {
			t.Errorf("got %v", err)
		}
		first.client.Cut(false)
		if err := first.Confirm(t.Context()); !errors.Is(err, standby.ErrFenced) {
			t.Errorf("got %v, want that the second has it", err)
		}
		testkit.OK(t, second.Confirm(t.Context()))
	})
}

// A lease that is released is taken at once.
func TestLeaseReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewLeases()
		first := campaign(t, server, "first")
		second := campaign(t, server, "second")
		defer second.stop()
		time.Sleep(time.Minute)
		first.Release()
		if first.Gate() == nil {
			t.Error("it may still publish")
		}
		first.stop()
		testkit.OK(t, <-first.done)
		released := time.Now()
		<-second.Elected()
		if took := time.Since(released); took > 1200*time.Millisecond {
			t.Errorf("took over after %v", took)
		}
	})
}

// A lease that is not released expires.
func TestLeaseExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := testkit.NewLeases()
		first := campaign(t, server, "first")
		second := campaign(t, server, "second")
		defer second.stop()
		first.stop() // something may be on the wire
		testkit.OK(t, <-first.done)
		ended := time.Now()
		<-second.Elected()
		if took := time.Since(ended); took < 14*time.Second {
			t.Errorf("took over after %v", took)
		}
	})
}

// A board belongs to the one that took it last.
func TestBoardOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		server := testkit.NewLeases()
		first, second := campaign(t, server, "first"), campaign(t, server, "second")
		defer first.stop()
		defer second.stop()
		if _, led, err := second.board.Get(ctx); err != nil || led {
			t.Fatalf("got %t, %v of a board that nobody made", led, err)
		}
		_, led, err := first.board.Acquire(ctx)
		if err != nil || led {
			t.Fatalf("got %t, %v", led, err)
		}
		progress := standby.Progress{
			Units: map[string]standby.Unit{"all/pods": {
				Scope: "labels=", Delivered: "17", Further: map[string]resource.Version{"js": "19"},
				Epoch: 1,
			}}, Sinks: map[string][]byte{"js": []byte("position")},
		}
		testkit.OK(t, first.put(&progress))
		testkit.OK(t, first.put(&progress))
		got, led, err := second.board.Get(ctx)
		if err != nil || !led || !reflect.DeepEqual(got.Units, progress.Units) ||
			string(got.Sinks["js"]) != "position" {
			t.Fatalf("got %+v, %t, %v", got, led, err)
		}
		if got, led, err = second.board.Acquire(ctx); err != nil || !led ||
			got.Units["all/pods"].Delivered != "17" {
			t.Fatalf("got %+v, %t, %v", got, led, err)
		}
		if err := first.put(&progress); !errors.Is(err, standby.ErrTaken) {
			t.Errorf("got %v, want that the board is another's", err)
		}
		testkit.OK(t, second.put(&progress))
	})
}

// A board that somebody deletes is made again.
func TestDeletedBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		server := testkit.NewLeases()
		first, second := campaign(t, server, "first"), campaign(t, server, "second")
		defer first.stop()
		defer second.stop()
		_, _, err := first.board.Acquire(ctx)
		testkit.OK(t, err)
		progress := standby.Progress{Units: map[string]standby.Unit{"all/pods": {Delivered: "17"}}}
		testkit.OK(t, first.put(&progress))
		server.Delete("tools", "bridge-progress")
		if err := first.put(&progress); err == nil || errors.Is(err, standby.ErrTaken) {
			t.Errorf("got %v, want that it is tried again", err)
		}
		testkit.OK(t, first.put(&progress))
		if got, led, err := second.board.Acquire(ctx); err != nil || !led ||
			got.Units["all/pods"].Delivered != "17" {
			t.Fatalf("got %+v, %t, %v", got, led, err)
		}
		server.Delete("tools", "bridge-progress")
		_, _, err = second.board.Acquire(ctx)
		testkit.OK(t, err)
		if err := first.put(&progress); !errors.Is(err, standby.ErrTaken) {
			t.Errorf("got %v, want that the board is another's", err)
		}
	})
}

// An unsynced replica leaves a vacant lease to others for a while.
func TestUnsyncedReplica(t *testing.T) {
	never := func() string { return "" }
	unsynced := func() string { return "it knows nothing" }
	for name, tt := range map[string]struct {
		other    func() string // nil for nobody else
		released bool
		from, to time.Duration // when this one leads, from the leader's end on; never when to is 0
	}{
		"nobody else is there": {from: 45 * time.Second, to: 48 * time.Second},
		"nobody else is there, and it was given up": {
			released: true, from: 30 * time.Second,
			to: 33 * time.Second,
		},
		"another one is fit": {other: never},
		"another one is unsynced too": {
			other: unsynced, from: 45 * time.Second,
			to: 48 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := testkit.NewLeases()
				leader := campaign(t, server, "leader")
				time.Sleep(10 * time.Millisecond)
				candidates := []*candidate{campaignIf(t, server, "unsynced", unsynced)}
				if tt.other != nil {
					candidates = append(candidates, campaignIf(t, server, "other", tt.other))
				}
				defer func() {
					for _, c := range candidates {
						c.stop()
					}
				}()
				time.Sleep(time.Minute)
				if tt.released {
					leader.Release()
				}
				leader.stop()
				ended := time.Now()
				for !slices.ContainsFunc(candidates, (*candidate).leads) &&
					time.Since(ended) < 2*time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				took := time.Since(ended)
				switch {
				case tt.to == 0:
					if candidates[0].leads() || !candidates[1].leads() || took > 18*time.Second {
						t.Errorf("the unsynced one leads: %t, after %v", candidates[0].leads(), took)
					}
				case took < tt.from || took > tt.to:
					t.Errorf("it leads after %v, want %v to %v", took, tt.from, tt.to)
				}
			})
		})
	}
}

// An unsynced replica creates a missing lease only after a while.
func TestUnsyncedReplicaAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := campaignIf(t, testkit.NewLeases(),
			"unsynced", func() string { return "it knows nothing" })
		defer c.stop()
		<-c.Elected()
		if took := time.Since(began); took < 30*time.Second || took > 33*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		testkit.OK(t, c.Gate()) // it renews what it has, though it is unsynced
	})
}
