package cli

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The first signal ends the context, and the second ends the process.
func TestTwoSignals(t *testing.T) {
	exited := make(chan int, 1)
	ctx, stop := UntilSignal(t.Context(), slog.New(slog.DiscardHandler), func(code int) { exited <- code })
	defer stop()
	signal := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the context continues")
	}
	if got := context.Cause(ctx).Error(); got != "terminated signal received" {
		t.Errorf("cause %q", got)
	}
	select {
	case code := <-exited:
		t.Fatalf("the first signal ended the process with %d", code)
	case <-time.After(50 * time.Millisecond):
	}
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		signal()
		select {
		case code := <-exited:
			if code != ExitFailed {
				t.Errorf("exit code %d", code)
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatal("the process continues")
}

func TestRepeatedSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, done := make(chan os.Signal, 2), make(chan struct{})
		var reported []string
		go watchSignals(signals, done,
			func(s os.Signal) { reported = append(reported, "first "+s.String()) },
			func(s os.Signal) { reported = append(reported, "second "+s.String()) })
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM // as timeout(1) sends it, to the process and to its group
		time.Sleep(time.Second)
		signals <- os.Interrupt
		synctest.Wait()
		close(done)
		if got, want := strings.Join(reported, ", "), "first terminated, second interrupt"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
