package nats_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// requirePanic fails unless an error is a panic whose stack leads to this file.
func requirePanic(t *testing.T, err error) {
	t.Helper()
	wantClass(t, err, sinks.Retry)
	if _, ok := errors.AsType[*event.PanicError](err); !ok ||
		!strings.Contains(event.StackOf(err), "panic_test.go") {
		t.Errorf("got %v, with the stack %s", err, event.StackOf(err))
	}
}

func TestPanic(t *testing.T) {
	t.Run("at a message that is read back", func(t *testing.T) {
		ts := newTestServer(t)
		before := ts.openSink()
		mustStore(t, before, ev("a", 1))
		position := before.Position()
		mustStore(t, before, ev("a", 2))
		sink := ts.openSink()
		requirePanic(t, sink.ReadBack(t.Context(), position, func(string) { panic("a bug") }))
		var found []string
		err := sink.ReadBack(t.Context(), position, func(id string) { found = append(found, id) })
		if err != nil || len(found) != 1 {
			t.Errorf("after it %v, %q", err, found)
		}
		mustStore(t, sink, ev("a", 3))
	})
	t.Run("while the fence is taken", func(t *testing.T) {
		ts := newTestServer(t)
		var isBroken bool
		sink := ts.newSink(func(c *nats.Options) {
			c.Fence = &sinks.Fence{Name: "test", Confirm: func(context.Context) error {
				if isBroken {
					panic("a bug")
				}
				return nil
			}}
		})
		t.Cleanup(func() { _ = sink.Close() })
		isBroken = true
		requirePanic(t, sink.Open(t.Context()))
		isBroken = false
		if err := sink.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustStore(t, sink, ev("a", 1))
	})
	t.Run("where the origin of a duplicate is looked up", func(t *testing.T) {
		ts := newTestServer(t)
		var log bytes.Buffer
		sink := ts.openSink(func(c *nats.Options) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		if got := nats.OriginOfNothing(t.Context(), sink); got != "unchecked" ||
			!strings.Contains(log.String(), "call.go") {
			t.Errorf("the origin is %s; the log: %s", got, log.String())
		}
	})
}
