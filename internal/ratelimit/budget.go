package ratelimit

import (
	"sync"
	"sync/atomic"
)

// Budget bounds what several queues hold together, in bytes. Each queue has an account, and a bound
// of its own as well. A nil Budget has no bound. All methods may be called concurrently.
//
// Any queue may use the first half. The second half is reserved in equal parts, one for each queue:
// once the first half is used, a queue has room only while it holds less than its part. So queues
// that are stuck leave the others their parts, and the sum stays below the budget. It may be
// exceeded by one batch of each queue, since a queue checks its bound before it adds a batch.
//
// A queue without room waits until it holds less itself. Until it asks for its bound again, it does
// not notice that others hold less.
type Budget struct {
	max      int64
	used     atomic.Int64 // by all accounts
	accounts atomic.Int64 // that are open
}

// NewBudget makes a Budget of so many bytes, or none where that is 0.
func NewBudget(bytes int64) *Budget {
	if bytes <= 0 {
		return nil
	}
	return &Budget{max: bytes}
}

// Used returns the bytes that all accounts hold.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	return b.used.Load()
}

// Account is what one queue holds of a Budget. A nil Account has no bound. All methods may be
// called concurrently.
type Account struct {
	mu     sync.Mutex
	budget *Budget // guarded by mu; nil without a bound, and once it is closed
	held   int     // guarded by mu
}

// Account opens an account that holds nothing. Close follows.
func (b *Budget) Account() *Account {
	if b == nil {
		return nil
	}
	b.accounts.Add(1)
	return &Account{budget: b}
}

// Set sets how many bytes the queue holds now.
func (a *Account) Set(bytes int) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setLocked(bytes)
}

func (a *Account) setLocked(bytes int) {
	if a.budget != nil {
		a.budget.used.Add(int64(bytes - a.held))
		a.held = bytes
	}
}

// Bound returns how many bytes the queue may hold now: at most own, at least 1.
func (a *Account) Bound(own int) int {
	if a == nil {
		return own
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.budget
	if b == nil || b.used.Load() < b.max/2 {
		return own
	}
	part := b.max / 2 / b.accounts.Load()
	return int(max(min(int64(own), part), 1))
}

// Close ends the account. It holds nothing any more.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.budget != nil {
		a.setLocked(0)
		a.budget.accounts.Add(-1)
		a.budget = nil
	}
}
