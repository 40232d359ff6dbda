package http

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/sinks"
)

// A request hangs when it has no answer for hangsAfter, and for hangsTimes as long as answers take
// on the mean. Then it no longer counts against Config.Concurrency, so that requests that hang
// don't keep other objects waiting. maxHanging bounds all requests: that many times Concurrency.
const (
	hangsAfter = time.Second
	hangsTimes = 4
	maxHanging = 4
)

// slots bounds the requests at once that do not hang. Who waits for one is served in order.
type slots struct {
	free *semaphore.Weighted

	mu   sync.Mutex
	mean time.Duration // guarded by mu: of how long answers took, the last ones weigh most
}

func newSlots(n int) *slots { return &slots{free: semaphore.NewWeighted(int64(n))} }

// enter waits for a slot. Call leave once the request has ended.
func (s *slots) enter(ctx context.Context) (leave func(answered bool), err error) {
	if s.free.Acquire(ctx, 1) != nil {
		return nil, &sinks.Error{Class: sinks.Stopped, Err: ctx.Err()}
	}
	began := time.Now()
	release := sync.OnceFunc(func() { s.free.Release(1) })
	hangs := time.AfterFunc(s.patience(), release)
	return func(answered bool) {
		hangs.Stop()
		release()
		if answered {
			s.answered(time.Since(began))
		}
	}, nil
}

// patience returns after what time a request hangs.
func (s *slots) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(hangsAfter, hangsTimes*s.mean)
}

func (s *slots) answered(took time.Duration) {
	const weight = 8
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mean == 0 {
		s.mean = took
	}
	s.mean += (took - s.mean) / weight
}
