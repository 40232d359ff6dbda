package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/tail"
)

func newRunCommand() *cobra.Command {
	var toStdout bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Stream changes until told to stop",
		Long: `run watches the resources of a configuration and sends every change to its sinks, until it gets SIGINT or SIGTERM.

Without a file it watches every resource that can be listed and watched, but Leases and Events, in the cluster that kubectl
talks to, and runs a NATS JetStream server on 127.0.0.1:4222 that any NATS client can read:

  nats --server nats://127.0.0.1:4222 subscribe 'k8s.>'

What must survive a restart (which versions the sinks have, and what waits for them) lies in the state directory. Give it a disk
that survives too, and each running bridge its own.

A first SIGINT or SIGTERM stops reading and goes on sending for the time of drain; a second ends at once. Nothing is lost by
either: what was not sent is sent after the next start.

Every key of the configuration outside of its lists has an environment variable (state.dir: BRIDGE_STATE_DIR), keys of informers and
sinks by name or index (BRIDGE_SINKS_LAKE_KAFKA_BROKERS). A flag beats a variable, a variable beats the file.

Exit codes: 0 after a clean stop, 1 when something failed while it ran, 2 when it could not start.`,
		Example: `  bridge run --stdout                            a quick look: changes on the terminal, nothing stored
  bridge run                                     everything, into an embedded NATS server
  bridge run --config bridge.yaml
  bridge run --config bridge.yaml --context prod --admin-address :8080
  BRIDGE_INFORMERS_ALL_RESOURCES=pods,nodes bridge run`,
		Args: cobra.NoArgs,
	}
	s := newSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context", "cluster", "state.dir", "admin.address", "log.level", "log.format", "drain", "shard")
	cmd.Flags().BoolVar(&toStdout, "stdout", false, "a quick look: print events instead of sending them, keep state in memory, no admin server unless --admin-address is given")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		load := func() (*config.Config, error) {
			c, err := s.load()
			if err == nil && toStdout {
				quickLook(c, cmd.Flags().Changed("admin-address"))
			}
			return c, err
		}
		began := contentOf(s.file)
		c, err := load()
		if err != nil {
			return err
		}
		return runBridge(cmd, c, source{load: load, file: s.file, began: began})
	}
	return cmd
}

// quickLook changes a configuration so that it sends and keeps nothing.
func quickLook(c *config.Config, keepAdmin bool) {
	const name = "stdout"
	c.Sinks = []config.Sink{{Name: name, Stdout: &config.Stdout{Format: "auto"}}}
	for i := range c.Informers {
		binding := c.Informers[i].Sinks[0]
		binding.Name = name
		c.Informers[i].Sinks = []config.Binding{binding}
	}
	c.State.Mode, c.Standby.Enabled = "memory", false
	if !keepAdmin {
		c.Admin.Address = ""
	}
}

// source is where a configuration comes from, to read it again. began is what its file held before it was read; file is "" for none.
type source struct {
	load        func() (*config.Config, error)
	file, began string
}

func runBridge(cmd *cobra.Command, c *config.Config, from source) (err error) {
	log, level := newLeveledLogger(c.Log, cmd.ErrOrStderr())
	boundMemory(log, memlimit.FromCgroup)
	sampleMemory(c.Admin.Pprof && c.Admin.Address != "")
	ctx, stop := untilSignal(cmd.Context(), log, os.Exit)
	defer stop()

	log.Info("bridge starts", "version", readVersion().Version, "informers", len(c.Informers), "sinks", len(c.Sinks))
	registry := newRegistry()
	a := &assembler{config: c, log: log, registry: registry, version: versionOf(from.file), undelivered: newUndelivered(&c.State, registry), feeds: newFeeds(c)}
	if a.replicas, err = a.newReplicas(); err != nil {
		return refused(err)
	}
	a.sink = func(cluster string, s *config.Sink, metrics prometheus.Registerer) (sinks.Sink, service, error) {
		m := &sinkMaker{cluster: cluster, stateDir: c.State.Dir, out: cmd.OutOrStdout(), log: log, registry: metrics, replicas: a.replicas, feeds: a.feeds}
		return m.make(s)
	}
	results := newOutcome(registry)
	start := newStarting(results)
	start.registerReadiness(registry)
	hub := tail.New(registry)
	a.waiting = start.waits
	if err := a.lookOn(hub); err != nil {
		return refused(err)
	}
	commands := &control{start: start, level: level}
	if from.file != "" {
		commands.reloader = &reloader{load: from.load, file: from.file, log: log, level: level, outcome: results, turn: make(chan struct{}, 1)}
	}
	hangups := onHangup(ctx, commands.reloader)
	server, err := listen(ctx, c, registry, start, commands, &looker{hub, start}, log)
	if err != nil {
		return refused(err)
	}
	defer func() { err = errors.Join(err, failed(start.close())) }()
	return serve(ctx, server, log, func(ctx context.Context) error {
		p, err := a.assemble(ctx)
		if err != nil {
			return startError(ctx, err)
		}
		provideToken(c, log)
		start.runs(p)
		if r := commands.reloader; r != nil {
			r.begin(a, p, from.began)
			following, end := context.WithCancel(ctx)
			var reloading sync.WaitGroup
			defer reloading.Wait()
			defer end()
			reloading.Go(func() { r.follow(following, hangups, c.Reload) })
		}
		return p.Run(ctx)
	})
}

// startError is clean when the start was only broken off.
func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return refused(err)
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
	)
	return registry
}

// listen takes the admin address, so that a port in use is found before anything runs; nil for no address.
func listen(ctx context.Context, c *config.Config, registry prometheus.Gatherer, start *starting, commands *control, look *looker, log *slog.Logger) (*admin.Server, error) {
	if c.Admin.Address == "" {
		return nil, nil
	}
	server, err := admin.New(admin.Config{
		Address: c.Admin.Address, Pprof: c.Admin.Pprof, Registry: registry, Log: log,
		Ready:   start.reasons,
		Status:  start.status,
		Look:    look,
		Control: commands,
		Access:  admin.Access{Token: token(c), Remote: c.Admin.Remote},
	})
	if err != nil {
		return nil, err
	}
	return server, server.Listen(ctx)
}

// serve runs the pipeline until ctx ends or something fails. The admin server is there before it, so that a start that has to wait can be
// watched, and outlives it, for the drain.
func serve(ctx context.Context, server *admin.Server, log *slog.Logger, pipeline func(context.Context) error) error {
	began := time.Now()
	g, gctx := errgroup.WithContext(context.WithoutCancel(ctx))
	adminCtx, stopAdmin := context.WithCancel(gctx)
	if server != nil {
		g.Go(func() error { return server.Run(adminCtx) })
	}
	g.Go(func() error {
		defer stopAdmin()
		work, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		// A failed admin server ends the pipeline too, in order.
		unhook := context.AfterFunc(gctx, func() { cancel(context.Cause(gctx)) })
		defer unhook()
		return pipeline(work)
	})
	return stopped(ctx, g.Wait(), time.Since(began), log)
}

// stopped says how the run ended, and makes an exit code of it.
func stopped(ctx context.Context, err error, ran time.Duration, log *slog.Logger) error {
	cause := context.Cause(ctx)
	if refusal, ok := errors.AsType[*exitError](err); ok {
		return refusal // it never ran
	}
	log = log.With("ran", ran.Round(time.Millisecond).String())
	switch {
	case err == nil, cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, cause)):
		log.Info("bridge stopped", "cause", fmt.Sprint(cause))
		return nil
	case cause != nil && errors.Is(err, bridge.ErrDrain):
		// Nothing is lost, so this is a clean end for whoever restarts bridges by their exit code.
		log.Warn("bridge stopped before everything was sent", "cause", fmt.Sprint(cause), "err", err)
		return nil
	}
	log.Error("bridge failed", "err", err)
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, bridge.ErrSink) || errors.Is(err, reflector.ErrOtherCluster) {
		return refused(err) // of brokers, which can't be asked before they run, and of what has changed since the start
	}
	return failed(err)
}
