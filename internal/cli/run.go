package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/resource"
)

func newRunCommand(build Build) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Stream changes until a signal stops it",
		Long: `run watches the resources of a configuration and sends every change to its sinks, until it
gets SIGINT or SIGTERM.

Without a file it watches every resource that can be listed and watched, but Leases and Events, in
the cluster that kubectl talks to, and runs a NATS JetStream server on 127.0.0.1:4222 that any NATS
client can read. It keeps every version for a week, within 1 GiB, in the state directory:

  nats --server nats://127.0.0.1:4222 subscribe 'k8s.>'
  bridge history deploy/web -n shop

What must survive a restart (which versions the sinks have, and their backlog) lies in the state
directory. Give it a disk that survives too, and each running bridge its own.

A first SIGINT or SIGTERM stops reading and still sends for the time of shutdownTimeout; a
second ends at once. Nothing is lost by either: what was not sent is sent after the next start.

Every key of the configuration outside of its lists has an environment variable (state.dir:
BRIDGE_STATE_DIR), keys of informers and sinks by name or index (BRIDGE_SINKS_LAKE_KAFKA_BROKERS). A
flag beats a variable, a variable beats the file.

Exit codes: 0 after a clean stop, 1 when something failed while it ran, 2 when it could not start.`,
		Example: `  bridge run                                     everything, into an embedded NATS server
  bridge run --config bridge.yaml
  bridge run --config bridge.yaml --context prod --admin-address :8080
  BRIDGE_INFORMERS_ALL_RESOURCES=pods,nodes bridge run`,
		Args: cobra.NoArgs,
	}
	s := NewSendingSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context", "cluster",
		"state.dir", "admin.address", "log.level", "log.format", "shutdownTimeout", "shard")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := s.Load()
		if err != nil {
			return err
		}
		r := &runner{cmd: cmd, build: build, source: app.NewSource(s.File, s.Load), file: s.File != ""}
		r.progress = newProgress(c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		return r.run(c)
	}
	return cmd
}

// runner sets the process up, and runs a bridge in it.
type runner struct {
	cmd    *cobra.Command
	build  Build
	source *app.Source
	file   bool // the configuration is from a file
	// progress is shown on the terminal; nil for none.
	progress *progress
}

func (r *runner) run(c *config.Config) error {
	stderr := r.cmd.ErrOrStderr()
	options := app.Options{
		Config: c, Source: r.source, Version: r.build.Version, Stdout: r.cmd.OutOrStdout(),
	}
	if r.progress != nil {
		stderr, options.Progress = r.progress.screen, r.progress.run
	}
	options.Log, options.Level = NewLeveledLogger(c.Log, stderr)
	sampleMemory(c.Admin.Pprof && c.Admin.Address != "")
	ctx, stop := UntilSignal(r.cmd.Context(), options.Log, os.Exit)
	var bounding sync.WaitGroup
	defer bounding.Wait()
	defer stop()
	bounding.Go(func() { boundProcs(ctx, resource.LargeSeen(), newWaits().grew) })
	synced := boundMemory(options.Log, memlimit.FromCgroup)
	options.QueueBytes = queueBytes(memlimit.FromSystem)
	options.OnSynced = func() {
		synced()
		bounding.Go(func() { freeMemory(ctx) })
	}
	if r.file { // without a file to read again, SIGHUP ends the process
		options.Hangups = onHangup(ctx)
	}
	options.Fatal = func(err error) {
		options.Log.Error("bridge failed", "err", err)
		os.Exit(ExitFailed)
	}
	return ended(app.Run(ctx, options))
}

// ended is the end of a bridge that was run, with the code that it means.
func ended(err error) error {
	if _, ok := errors.AsType[*app.StartError](err); ok {
		return Refused(err)
	}
	return Failed(err)
}

// onHangup gives a channel that has a value for each SIGHUP, until ctx ends.
func onHangup(ctx context.Context) <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(hangups) })
	return hangups
}
