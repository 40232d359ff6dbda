package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/reflector"
)

func TestHowARunEnds(t *testing.T) {
	signalled, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("terminated signal received")
	cancel(cause)
	for _, test := range []struct {
		name string
		ctx  context.Context
		err  error
		want string
	}{
		{"asked to stop", signalled, nil, "clean"},
		{"asked to stop, and its parts say so", signalled, errors.Join(context.Canceled), "clean"},
		{"asked to stop, and the drain took too long", signalled, bridge.ErrDrain, "clean"},
		{"asked to stop, and the last commit failed", signalled, errors.New("disk full"), "failed"},
		{"a part failed", t.Context(), errors.New("disk full"), "failed"},
		{"a broker can't be used", t.Context(), fmt.Errorf("%w: no stream", bridge.ErrSink), "not started"},
		{"it was another cluster", t.Context(), reflector.ErrOtherCluster, "not started"},
		{"it did not start", t.Context(), errors.Join(&StartError{errors.New("no configuration")}), "not started"},
	} {
		err := stopped(test.ctx, test.err, time.Second, slog.New(slog.DiscardHandler))
		got := "clean"
		if _, ok := errors.AsType[*StartError](err); ok {
			got = "not started"
		} else if err != nil {
			got = "failed"
		}
		if got != test.want {
			t.Errorf("%s: %s (%v), want %s", test.name, got, err, test.want)
		}
	}
}

// What a start waits for.
func TestStartConditions(t *testing.T) {
	class := func(c kube.Class) error { return &kube.Error{Class: c, Err: errors.New("no")} }
	synctest.Test(t, func(t *testing.T) {
		var refused time.Time
		expect := func(c kube.Class, want bool) {
			t.Helper()
			if got := worthWaiting(class(c), &refused); got != want {
				t.Errorf("class %v: %v", c, got)
			}
		}
		expect(kube.Untrusted, false)
		expect(kube.Other, false)
		expect(kube.Forbidden, true)
		time.Sleep(refusals - time.Second)
		expect(kube.Unauthenticated, true)
		expect(kube.Unreachable, true) // it was restarted: the patience starts again
		time.Sleep(time.Hour)
		expect(kube.Unavailable, true)
		expect(kube.Forbidden, true)
		time.Sleep(refusals)
		expect(kube.Forbidden, false)
	})
}
