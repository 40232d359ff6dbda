package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// UntilSignal is a context that ends with the first SIGINT or SIGTERM, whose name is its cause. A
// second signal ends the process at once: somebody does not want to wait for the drain. stop ends
// the watch for signals.
func UntilSignal(
	ctx context.Context, log *slog.Logger, exit func(code int),
) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go watchSignals(signals, done, func(first os.Signal) {
		cancel(fmt.Errorf("%s signal received", first))
	}, func(second os.Signal) {
		log.Warn("second signal: ending at once; what was not sent is sent after the next start",
			"signal", second.String())
		exit(ExitFailed)
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(context.Canceled)
	}
}

// repeatWindow is how long after the first a second signal is taken for the same one: timeout(1),
// and others that signal a process and then its group, send it twice.
const repeatWindow = 250 * time.Millisecond

// watchSignals calls begin at the first signal and end at a second one, after which it returns. It
// also returns when done is closed.
func watchSignals(signals <-chan os.Signal, done <-chan struct{}, begin, end func(os.Signal)) {
	var began time.Time
	for {
		select {
		case <-done:
			return
		case s := <-signals:
			switch {
			case began.IsZero():
				began = time.Now()
				begin(s)
			case time.Since(began) >= repeatWindow:
				end(s)
				return
			}
		}
	}
}
