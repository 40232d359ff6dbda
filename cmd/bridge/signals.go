package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal is a context that ends with the first SIGINT or SIGTERM, whose name is its cause. A second signal ends the process at
// once: somebody does not want to wait for the drain. stop ends the watch for signals.
func untilSignal(ctx context.Context, log *slog.Logger, exit func(code int)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case s := <-signals:
				if n > 0 {
					log.Warn("second signal: ending at once; what was not sent is sent after the next start", "signal", s.String())
					exit(exitFailed)
					return
				}
				cancel(fmt.Errorf("%s signal received", s))
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(context.Canceled)
	}
}

// onHangup gives a channel that tells of SIGHUP, for a bridge that has a file to read again; for another, SIGHUP ends it as ever. ctx ends the
// watch.
func onHangup(ctx context.Context, r *reloader) <-chan os.Signal {
	if r == nil {
		return nil
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(hangups) })
	return hangups
}
