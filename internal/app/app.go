// Package app turns a configuration into a running bridge. It and the packages below it are the
// only ones that know both the configuration and the stages.
//
// In: a checked configuration. Out: a bridge that runs, its admin server, and answers about the
// configuration (samples, its schema, a check of the cluster and the brokers).
//
// Run contacts the API server, opens the state, assembles informers and sinks, and blocks until
// its context ends or a part fails. While it runs, the configuration can be read again (reload.go)
// and the API server's resources can change (discover.go). Brokers are contacted by the sinks,
// after the start.
package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher/tail"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/sinks"
)

// StartError is why a bridge could not start, or could not have: its configuration or its
// surroundings are wrong. Every other error is a failure while it ran.
type StartError struct{ Err error }

func (e *StartError) Error() string { return e.Err.Error() }

func (e *StartError) Unwrap() error { return e.Err }

// Options of Run.
type Options struct {
	Config *config.Config
	// Input reads the configuration again.
	Input *ConfigInput
	// Version of the program, for the log, /status and traces.
	Version string
	Log     *slog.Logger
	Level   *slog.LevelVar // of Log
	// Stdout is where sinks of kind stdout write.
	Stdout io.Writer
	// Hangups has a value for each SIGHUP, which reloads; nil without a file.
	Hangups <-chan os.Signal
	// Progress is run while the bridge runs and drains, with the status to show; nil shows nothing.
	// Run waits for its end.
	Progress func(ctx context.Context, status func() ProcessStatus)
	// QueueBytes is as in bridge.Config.
	QueueBytes int64
	// OnSynced is called once, when all resources of the start are in sync.
	OnSynced func()
	// Fatal ends the process: the state can't be written any more, and parts wait for it that could
	// not be stopped in order.
	Fatal func(error)
}

// ConfigInput is where a configuration comes from.
type ConfigInput struct {
	load  func() (*config.Config, error)
	file  string // "" for none
	began string // what the file held when the input was made
}

// NewConfigInput returns the input of a configuration that load reads from file, "" for none. Make
// it before the first load: a change of the file after that is noticed.
func NewConfigInput(file string, load func() (*config.Config, error)) *ConfigInput {
	return &ConfigInput{load: load, file: file, began: contentOf(file)}
}

// Run runs a bridge until ctx ends or something fails. It is nil after a clean stop, and a
// StartError when the bridge could not start.
func Run(ctx context.Context, o Options) (err error) {
	c, log := o.Config, o.Log
	log.Info("bridge starts", "version", o.Version, "informers", len(c.Informers),
		"sinks", len(c.Sinks))
	logWarnings(log, Warnings(c))
	warnOfReaders(&c.State, log)
	registry := newRegistry()
	a := &assembler{
		config: c, log: log, registry: registry, fatal: o.Fatal, onSynced: o.OnSynced, queueBytes: o.QueueBytes,
		version: versionOf(o.Input.file), undelivered: newUndelivered(&c.State,
			registry), feeds: newFeeds(c), letters: &letterSigner{},
	}
	if a.replicas, err = a.newReplicas(); err != nil {
		return &StartError{err}
	}
	asked := new(ask.Set)
	results := newOutcome(registry)
	start := newStarting(o.Version, results)
	a.sink = func(
		cluster string, s *config.Sink, metrics prometheus.Registerer,
	) (sinks.Sink, sinks.Service, error) {
		env := sinks.Env{
			Cluster: cluster, StateDir: c.State.Dir, Out: o.Stdout, Log: log, Registry: metrics,
			Fence: a.replicas.fence(), Confirm: a.replicas.confirm(), Pseudonym: a.letters.pseudonym,
			FollowUp: start.followUp,
			Serve: func(questions any) func() {
				dir := cmp.Or(s.History.Dir, c.HistoryDir())
				//nolint:forcetypeassert // see Env
				return asked.Serve(questions.(*query.Questions), ask.Place{Cluster: cluster, Dir: dir})
			},
		}
		if !kube.InPod() {
			env.IsOwnUser = admin.IsOwnUser
		}
		a.feeds.addTo(&env, s.Name)
		return newSink(s, env)
	}
	start.registerReadiness(registry)
	hub := tail.New(registry)
	a.waiting = start.waits
	if err := a.observe(hub, o.Version); err != nil {
		return &StartError{err}
	}
	commands := &adminCommands{start: start, level: o.Level, config: c, letters: a.letters}
	if a.undelivered != nil {
		commands.undelivered = UndeliveredDir(&c.State)
	}
	if o.Input.file != "" {
		commands.reloader = newReloader(&o, results)
	}
	samples := newSamples(registry)
	server, err := listen(ctx, c, registry, samples, start, commands, &inspector{hub, start}, asked, log)
	if err != nil {
		return &StartError{err}
	}
	defer func() { err = errors.Join(err, start.close()) }()
	defer o.show(ctx, start.status)()
	return serve(ctx, server, samples, log, func(ctx context.Context) error {
		p, err := a.assemble(ctx)
		if err != nil {
			return startError(ctx, err)
		}
		provideToken(c, log)
		start.runs(p)
		if r := commands.reloader; r != nil {
			r.begin(a, p, o.Input.began)
			following, end := context.WithCancel(ctx)
			var reloading sync.WaitGroup
			defer reloading.Wait()
			defer end()
			reloading.Go(func() { r.watch(following, o.Hangups, c.ReloadInterval) })
		}
		return p.bridge.Run(ctx)
	})
}

// show runs Progress. The function that it returns ends it.
func (o *Options) show(ctx context.Context, status func() ProcessStatus) (end func()) {
	if o.Progress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // a drain is shown too
	var showing sync.WaitGroup
	showing.Go(func() { o.Progress(ctx, status) })
	return func() {
		cancel()
		showing.Wait()
	}
}

// startError is clean when the start was only broken off.
func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return &StartError{err}
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return registry
}

// newSamples returns the samples of what the page shows of the recent past.
func newSamples(from prometheus.Gatherer) *metric.Samples {
	return metric.NewSamples(from,
		metric.Sampled{Name: "bridge_informer_oldest_seconds", By: "sink", Max: true},
		metric.Sampled{Name: "bridge_publisher_published_total", By: "sink"},
		metric.Sampled{Name: "bridge_publisher_queued_items", By: "sink", Max: true},
		metric.Sampled{Name: "bridge_publisher_retries_total", By: "sink"},
		metric.Sampled{Name: "bridge_publisher_dead_letters_total", By: "sink"},
		metric.Sampled{Name: "bridge_informer_dropped_total", By: "sink"},
		metric.Sampled{Name: "bridge_informer_changes_total", By: "op"},
		metric.Sampled{Name: "bridge_informer_gaps_total"},
	)
}

// listen takes the admin address, so that a port in use is found before anything runs; nil for no
// address.
func listen(
	ctx context.Context, c *config.Config, registry prometheus.Gatherer, samples *metric.Samples,
	start *statusSource,
	commands *adminCommands, look *inspector, asked *ask.Set, log *slog.Logger,
) (*admin.Server, error) {
	if c.Admin.Address == "" {
		return nil, nil
	}
	var secured *tls.Config
	if t := c.Admin.TLS; t.CertFile != "" {
		var err error
		if secured, err = admin.ServerTLS(t.CertFile, t.KeyFile); err != nil {
			return nil, fmt.Errorf("admin.tls: %w", err)
		}
	}
	server, err := admin.New(admin.Config{
		Address: c.Admin.Address, TLS: secured, Pprof: c.Admin.Pprof, Registry: registry, Log: log,
		Ready:   start.reasons,
		Status:  func() any { return start.status() },
		Samples: func(window time.Duration) any { return samples.Report(window) },
		Look:    look,
		History: asked,
		Control: commands,
		Access: admin.Access{
			Token: tokenReader(c), Remote: c.Admin.Remote,
			// A pod's loopback address is shared with sidecars, debug containers and port-forwards.
			OwnUser: !kube.InPod(),
		},
	})
	if err != nil {
		return nil, err
	}
	return server, server.Listen(ctx)
}

// serve runs the bridge until ctx ends or something fails. The admin server is there before it,
// so that a start that has to wait can be watched, and outlives it, for the drain.
func serve(
	ctx context.Context, server *admin.Server, samples *metric.Samples, log *slog.Logger,
	run func(context.Context) error,
) error {
	began := time.Now()
	g, gctx := errgroup.WithContext(context.WithoutCancel(ctx))
	adminCtx, stopAdmin := context.WithCancel(gctx)
	if server != nil {
		g.Go(func() error { return server.Run(adminCtx) })
		g.Go(func() error {
			samples.Run(adminCtx)
			return nil
		})
	}
	g.Go(func() error {
		defer stopAdmin()
		work, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		// A failed admin server ends the bridge too, in order.
		unhook := context.AfterFunc(gctx, func() { cancel(context.Cause(gctx)) })
		defer unhook()
		return run(work)
	})
	return stopped(ctx, g.Wait(), time.Since(began), log)
}

// stopped says how the run ended: nil for a clean end.
func stopped(ctx context.Context, err error, ran time.Duration, log *slog.Logger) error {
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*StartError](err); ok {
		return err // it never ran
	}
	log = log.With("ran", ran.Round(time.Millisecond).String())
	switch {
	case err == nil, cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, cause)):
		log.Info("bridge stopped", "cause", fmt.Sprint(cause))
		return nil
	case cause != nil && errors.Is(err, bridge.ErrDrain):
		// Nothing is lost, so this is a clean end for whoever restarts bridges by their exit code.
		log.Warn("bridge stopped before everything was sent", "cause", fmt.Sprint(cause),
			"err", err)
		return nil
	}
	log.Error("bridge failed", "err", err)
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, bridge.ErrSink) ||
		errors.Is(err, reflector.ErrOtherCluster) {
		// of brokers, which can't be asked before they run, and of what has changed since the start
		return &StartError{err}
	}
	return err
}

// plural is "1 problem" or "3 problems".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// statusSource is what the admin server shows: at first why there is nothing to show yet, then the
// bridge. Its methods may be called concurrently.
type statusSource struct {
	version  string   // of the program
	outcome  *outcome // of reloads
	mu       sync.Mutex
	assembly *assembly // guarded by mu; nil until it is assembled
	why      string    // guarded by mu
	// seen is since when each reason of not being ready was there. Guarded by mu.
	seen  map[string]time.Time
	began time.Time
}

func newStarting(version string, o *outcome) *statusSource {
	return &statusSource{
		version: version, outcome: o, why: "the API server has not been asked yet",
		began: time.Now().UTC(),
	}
}

// waits says why the start has to wait.
func (s *statusSource) waits(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = err.Error()
}

// runs is called when there is a bridge.
func (s *statusSource) runs(p *assembly) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assembly = p
}

func (s *statusSource) get() (p *assembly, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assembly, s.why
}

// reasons returns why the bridge is not ready, as the admin server shows it.
func (s *statusSource) reasons() []admin.Reason {
	p, why := s.get()
	if p == nil {
		return []admin.Reason{{What: "API server", Message: why}}
	}
	return s.date(p.reasons())
}

// date adds to reasons since when each was seen. They are looked at with every sample.
func (s *statusSource) date(reasons []admin.Reason) []admin.Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[string]time.Time{}
	for i := range reasons {
		r := &reasons[i]
		if r.Since.IsZero() {
			if r.Since = s.seen[r.What]; r.Since.IsZero() {
				r.Since = time.Now().UTC()
			}
		}
		seen[r.What] = r.Since
	}
	s.seen = seen
	return reasons
}

// ProcessStatus is what /status shows: what the process is, whether it is ready, and where the
// bridge stands once there is one.
type ProcessStatus struct {
	Version string         `json:"version"`
	Started time.Time      `json:"started"`
	Ready   bool           `json:"ready"`
	Reasons []admin.Reason `json:"reasons"` // of not being ready
	// Starting is why there is no bridge yet.
	Starting string `json:"starting,omitempty"`
	*bridge.Status
	// Reload is how the last attempt to read the configuration again went.
	Reload *ReloadStatus `json:"reload,omitempty"`
}

// status returns where the process stands.
func (s *statusSource) status() ProcessStatus {
	reasons := s.reasons()
	if reasons == nil {
		reasons = []admin.Reason{} // a list for whoever reads it
	}
	r := ProcessStatus{
		Version: s.version, Started: s.began, Ready: len(reasons) == 0,
		Reasons: reasons,
	}
	p, why := s.get()
	if p == nil {
		r.Starting = why
		return r
	}
	r.Status, r.Reload = new(p.bridge.Status()), s.outcome.status()
	return r
}

// close closes the bridge's state, if there is one, after nobody asks for its status any more.
func (s *statusSource) close() error {
	p, _ := s.get()
	if p == nil {
		return nil
	}
	return p.Close()
}

// registerReadiness shows as a metric what /readyz reports.
func (s *statusSource) registerReadiness(registry prometheus.Registerer) {
	metric.With(registry).FlagFunc("bridge_admin_ready",
		"1 when /readyz answers 200, 0 when it names reasons not to.",
		func() bool { return len(s.reasons()) == 0 })
}
