package ratelimit

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func TestBudget(t *testing.T) {
	b := NewBudget(200)
	stuck, late := b.Account(), b.Account()
	stuck.Set(90)
	if got := stuck.Bound(95); got != 95 {
		t.Errorf("with room the bound is %d, want its own", got)
	}
	late.Set(20)
	if got := stuck.Bound(95); got != 50 {
		t.Errorf("without room the bound is %d, want an equal part", got)
	}
	if got := late.Bound(30); got != 30 {
		t.Errorf("the bound of a small queue is %d, want its own", got)
	}
	stuck.Close()
	if got := late.Bound(95); got != 95 {
		t.Errorf("when the other is closed the bound is %d, want its own", got)
	}
	if got := b.Used(); got != 20 {
		t.Errorf("%d bytes are used, want 20", got)
	}
}

func TestWithoutBudget(t *testing.T) {
	a := NewBudget(0).Account()
	a.Set(1 << 30)
	if got := a.Bound(7); got != 7 {
		t.Errorf("the bound is %d, want its own", got)
	}
	a.Close()
	if got := NewBudget(0).Used(); got != 0 {
		t.Errorf("%d bytes are used of no budget", got)
	}
}

// Queues that keep to their bounds hold at most the budget and a batch of each, also where most of
// them are stuck: they never hold less.
func TestSum(t *testing.T) {
	const limit, queues, batch, own = 1 << 20, 40, 1 << 12, 1 << 18
	b := NewBudget(limit)
	var accounts []*Account
	for range queues {
		accounts = append(accounts, b.Account())
	}
	var running sync.WaitGroup
	for n, a := range accounts {
		running.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			held := 0
			for range 10_000 {
				switch {
				case held < a.Bound(own):
					held += 1 + random.IntN(batch)
				case n%4 == 0:
					held -= random.IntN(held + 1)
				}
				a.Set(held)
				if used := b.Used(); used > limit+queues*batch {
					t.Errorf("%d bytes are used of %d", used, limit)
					return
				}
			}
		})
	}
	running.Wait()
	for _, a := range accounts {
		a.Close()
	}
	if b.Used() != 0 || b.accounts.Load() != 0 {
		t.Errorf("%d bytes of %d queues are left", b.Used(), b.accounts.Load())
	}
}
