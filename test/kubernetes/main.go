package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// errStdinClosed is the cause of a stop when the process that started us went away
// (--exit-with-stdin).
var errStdinClosed = errors.New("standard input was closed")

func main() {
	if calledAsKubectl() {
		runKubectl()
		return
	}
	if len(os.Args) > 2 && os.Args[1] == componentCommand {
		os.Exit(runComponent(os.Args[2], os.Args[3:]))
	}
	opts, err := parseOptions(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(2)
	}
	if err := run(opts); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// run keeps a control plane up until it is asked to stop, which is no error.
func run(opts options) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if opts.exitWithStdin {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel(errStdinClosed)
		}()
	}
	sup, err := newSupervisor(opts)
	if err != nil {
		return err
	}
	return sup.run(ctx)
}
