package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

func TestSleep(t *testing.T) {
	slept := func(t *testing.T, want time.Duration, wantErr error, sleep func(ctx context.Context, cancel context.CancelCauseFunc) error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			began := time.Now()
			if err := sleep(ctx, cancel); !errors.Is(err, wantErr) || time.Since(began) != want {
				t.Errorf("%v after %v, want %v after %v", err, time.Since(began), wantErr, want)
			}
		})
	}
	cause := errors.New("asked to stop")
	t.Run("it waits for its time", func(t *testing.T) {
		slept(t, time.Minute, nil, func(ctx context.Context, _ context.CancelCauseFunc) error {
			return ratelimit.Sleep(ctx, time.Minute)
		})
	})
	t.Run("the end of the context ends it with the cause", func(t *testing.T) {
		slept(t, time.Second, cause, func(ctx context.Context, cancel context.CancelCauseFunc) error {
			time.AfterFunc(time.Second, func() { cancel(cause) })
			return ratelimit.Sleep(ctx, time.Minute)
		})
	})
	t.Run("a call ends it early", func(t *testing.T) {
		slept(t, time.Second, nil, func(ctx context.Context, _ context.CancelCauseFunc) error {
			woken := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(woken) })
			return ratelimit.SleepOr(ctx, time.Minute, woken)
		})
	})
	t.Run("without a time only a call or the context end it", func(t *testing.T) {
		slept(t, 24*time.Hour, nil, func(ctx context.Context, _ context.CancelCauseFunc) error {
			woken := make(chan struct{}, 1)
			time.AfterFunc(24*time.Hour, func() { woken <- struct{}{} })
			return ratelimit.SleepOr(ctx, -1, woken)
		})
	})
}
