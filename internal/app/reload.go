package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// reloader makes a running bridge what its configuration has become. Its methods may be called
// concurrently; one change is made at a time.
type reloader struct {
	load    func() (*config.Config, error)
	file    string
	log     *slog.Logger
	level   *slog.LevelVar
	outcome *outcome

	// changing is free from begin on. Its holder changes the bridge, and owns all below.
	changing *semaphore.Weighted
	// assembler is of the configuration that runs.
	assembler *assembler
	guard     *config.Guard
	assembly  *assembly
	secrets   map[string]string // what the files that are read once hold, by sink
	done      string            // the content that was dealt with last, applied or refused
}

// newReloader makes a reloader that waits for begin.
func newReloader(o *Options, results *outcome) *reloader {
	r := &reloader{
		load: o.Input.load, file: o.Input.file, log: o.Log, level: o.Level, outcome: results,
		changing: semaphore.NewWeighted(1),
	}
	r.changing.TryAcquire(1)
	return r
}

// begin makes a reloader for a configuration that runs. began is what its file held before it was
// read.
func (r *reloader) begin(a *assembler, p *assembly, began string) {
	r.assembler, r.assembly, r.secrets = a, p, secretsOf(a.config)
	r.guard = config.NewGuard(a.config)
	if contentOf(r.file) == began {
		r.done = r.content()
	}
	r.changing.Release(1)
}

// current returns the configuration that runs.
func (r *reloader) current(ctx context.Context) (*config.Config, error) {
	if r.changing.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	defer r.changing.Release(1)
	return r.assembler.config, nil
}

// errNotNow is returned when a change could not be tried: another attempt may succeed with the same
// file.
var errNotNow = errors.New("the configuration was not changed, and can be tried again")

// reload reads the configuration and makes the change. Why says what it is for, in the log. When it
// fails, nothing was changed.
func (r *reloader) reload(ctx context.Context, why string) (done string, err error) {
	if r.changing.Acquire(ctx, 1) != nil {
		return "", context.Cause(ctx)
	}
	defer r.changing.Release(1)
	began, content := time.Now(), r.content()
	changes, level, err := r.change(ctx, content)
	if errors.Is(err, statedb.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", errNotNow, err)
	}
	// else whoever asked may be gone, and the file is tried again
	if err == nil || !errors.Is(err, errNotNow) && ctx.Err() == nil {
		r.done = content
	}
	r.outcome.record(why, changes, err)
	switch {
	case errors.Is(err, bridge.ErrStopping):
		return "", err
	case err != nil:
		for _, problem := range settings.Problems(err) {
			r.log.Error("the configuration is refused; the one of before stays", "why", why,
				"problem", problem.Error())
		}
		if len(settings.Problems(err)) == 0 {
			r.log.Error("the configuration could not be changed; the one of before stays",
				"why", why, "err", err)
		}
		return "", err
	}
	done = changes.String()
	if level != "" {
		done += "; log level " + level
	}
	r.log.Info("the configuration was read again", "why", why, "changes", done,
		"took", time.Since(began).Round(time.Millisecond).String())
	return done, nil
}

// change finds out what is to change, and changes it. The level is that of the log, where it is
// another now: what an operator has set meanwhile stays until the configuration says something
// else.
func (r *reloader) change(
	ctx context.Context, content string,
) (done bridge.Changes, level string, err error) {
	version := versionOf(r.file)
	next, err := r.load()
	if err != nil {
		return done, "", err
	}
	before := r.assembler.config
	if err := r.guard.Check(next); err != nil {
		return done, "", err
	}
	after := *r.assembler
	after.config = next
	secrets := secretsOf(next)
	c, planner, err := r.plan(ctx, &after, secrets)
	if err != nil {
		return done, "", err
	}
	c.Version = version
	after.feeds.setConfig(next) // before the new sinks are opened
	if done, err = r.reconfigure(ctx, c, content); err != nil {
		after.feeds.setConfig(before)
		return done, "", err
	}
	// chains of owners may be asked for now
	r.assembly.db.SetBodiesPerSecond(after.bodiesPerSecond())
	r.assembly.rights.Change(c.Units)
	r.assembly.planner, r.assembler, r.secrets = planner, &after, secrets
	r.assembler.letters.setKey(planner.redactor)
	r.guard.SetRunning(next)
	if err := forgetOwnKey(next, r.assembly.db); err != nil {
		r.log.Error("the redaction key of before is still in the state directory", "err", err)
	}
	if next.Log.Level != before.Log.Level {
		level = next.Log.Level
		_ = r.level.UnmarshalText([]byte(level)) // the configuration has checked it
	}
	return done, level, nil
}

// reconfigure makes the change, unless the files change once more while it waits for its turn.
// Where another replica leads, that is until the leader has made it. The leader may never have it,
// if it sees the newer one first.
func (r *reloader) reconfigure(
	ctx context.Context, c *bridge.Change, content string,
) (bridge.Changes, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go whileSame(ctx, content, r.files(),
		func() { cancel(fmt.Errorf("%w: the file has changed again meanwhile", errNotNow)) })
	return r.assembly.bridge.Reconfigure(ctx, c)
}

// plan says what is to change. It asks the API server, and contacts nobody else.
func (r *reloader) plan(
	ctx context.Context, after *assembler, secrets map[string]string,
) (*bridge.Change, *planner, error) {
	found, err := r.discover(ctx, after.config)
	if err != nil {
		return nil, nil, err
	}
	shard, err := shardOf(after.config)
	if err != nil {
		return nil, nil, err
	}
	redactor, err := redactorOf(after.config, r.assembly.db)
	if err != nil {
		return nil, nil, err
	}
	planner, err := newPlanner(after.config, found, redactor, shard, r.assembly.planner)
	if err != nil {
		return nil, nil, err
	}
	first := planner.plan(found.catalog, found.types)
	c := &bridge.Change{Units: first.Units, Unknown: first.Unknown}
	if interval := after.config.Kubernetes.DiscoveryInterval; interval > 0 {
		c.Planner, c.PlanInterval = planner.ask, interval
	}
	for i := range after.config.Informers {
		inf := &after.config.Informers[i]
		c.Informers = append(c.Informers, inf.Name)
		if !planner.same(i, r.assembly.planner) {
			c.Changed = append(c.Changed, inf.Name)
		}
	}
	c.Sinks, err = r.sinks(after, secrets)
	return c, planner, err
}

// discover asks the API server what the names in a configuration mean now. Names of informers that
// have not changed mean what they meant, and what of them is not there is not wrong: it was there
// before.
func (r *reloader) discover(ctx context.Context, c *config.Config) (d discoveryResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	before := r.assembly.planner
	d.resolver = before.resolver
	if err := d.resolver.Ready(ctx); err != nil && kube.Classify(err) != kube.Forbidden {
		// one that is just starting does not know all custom resources
		return d, fmt.Errorf("%w: %w", errNotNow, err)
	}
	if d.catalog, err = d.resolver.Discover(ctx); err != nil {
		return d, fmt.Errorf("%w: %w", errNotNow, err)
	}
	var problems []error
	for i := range c.Informers {
		inf := &c.Informers[i]
		if j := before.has(inf); j >= 0 {
			types, _ := d.catalog.Resolve(before.selections[j])
			d.types = append(d.types, types)
			continue
		}
		types, err := d.catalog.Resolve(rights.Selection(inf))
		if errors.Is(err, kube.ErrUnavailable) {
			return d, fmt.Errorf("%w: informers[%d].resources: %w", errNotNow, i, err)
		}
		if err == nil && len(types) == 0 {
			err = errors.New("selects nothing: everything in resources is excluded")
		}
		problems = append(problems, c.ProblemsAt(fmt.Sprintf("informers[%d].resources", i), err)...)
		d.types = append(d.types, types)
	}
	return d, errors.Join(problems...)
}

// sinks returns all sinks: recreated where they have changed, else by name only.
func (r *reloader) sinks(
	after *assembler, secrets map[string]string,
) (list []bridge.SinkConfig, err error) {
	var problems []error
	for i := range after.config.Sinks {
		sink := &after.config.Sinks[i]
		same := slices.ContainsFunc(r.assembler.config.Sinks,
			func(other config.Sink) bool { return reflect.DeepEqual(other, *sink) })
		if same && secrets[sink.Name] == r.secrets[sink.Name] {
			list = append(list, bridge.SinkConfig{Name: sink.Name})
			continue
		}
		// an embedded server runs already: it can't be changed
		sc, _, err := after.makeSink(r.assembly.cluster, sink)
		problems = append(problems, sinkProblems(after.config, i, err)...)
		list = append(list, sc)
	}
	return list, errors.Join(problems...)
}

// Results of reading the configuration again.
const (
	reloadApplied   = "applied"
	reloadUnchanged = "unchanged" // nothing of what is watched or sent has changed
	reloadRefused   = "refused"   // it has a mistake, or changes what only a restart can
	reloadFailed    = "failed"    // the API server could not be asked, for one
)

// ReloadStatus is how the last attempt to read the configuration again went.
type ReloadStatus struct {
	Time   time.Time `json:"time"`
	Why    string    `json:"why"`
	Result string    `json:"result"`
	// RefusedSince is since when the file can't be applied: the configuration of before runs.
	RefusedSince time.Time `json:"refusedSince,omitzero"`
	// Changes that were made.
	Changes string `json:"changes,omitempty"`
	// Problems for which it was refused, each with its place in the file.
	Problems []string `json:"problems,omitempty"`
}

// outcome keeps how reloads went. Its methods may be called concurrently.
type outcome struct {
	count   *metric.Counters
	current *metric.Gauge

	mu   sync.Mutex
	last *ReloadStatus // guarded by mu; replaced and never changed; nil before the first
}

func newOutcome(registry prometheus.Registerer) *outcome {
	m := metric.With(registry)
	o := &outcome{
		count: m.Counters("bridge_config_reloads_total",
			"Times that the configuration was read again while the bridge ran, by result.",
			"result", reloadApplied, reloadUnchanged, reloadRefused, reloadFailed),
		current: m.Gauge("bridge_config_current",
			"1 while the configuration that runs is the one that was last read; 0 while that was "+
				"refused."),
	}
	o.current.Set(1)
	return o
}

// record keeps how an attempt went.
func (o *outcome) record(why string, changes bridge.Changes, err error) {
	s := &ReloadStatus{
		Time: time.Now().UTC(), Why: why, Result: reloadApplied,
		Changes: changes.String(),
	}
	switch problems := settings.Problems(err); {
	case errors.Is(err, bridge.ErrStopping):
		return
	case len(problems) > 0:
		s.Result, s.Changes = reloadRefused, ""
		for _, p := range problems {
			s.Problems = append(s.Problems, p.Error())
		}
	case err != nil:
		s.Result, s.Changes, s.Problems = reloadFailed, "", []string{err.Error()}
	case changes == (bridge.Changes{}):
		s.Result = reloadUnchanged
	}
	o.count.With(s.Result).Inc()
	o.current.Set(metric.Flag(err == nil))
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		s.RefusedSince = s.Time
	}
	if err != nil && o.last != nil && !o.last.RefusedSince.IsZero() {
		s.RefusedSince = o.last.RefusedSince
	}
	o.last = s
}

// status returns the last attempt, nil when there was none.
func (o *outcome) status() *ReloadStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// contentOf returns a digest of what files hold. It reads them, since notifications of changes miss
// some: a volume of a ConfigMap changes by a link to another directory, editors write a new file
// and rename it, and network file systems send none.
func contentOf(files ...string) string {
	h := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		fmt.Fprintf(h, "%s %d %v\n", file, len(data), err)
		h.Write(data)
	}
	return string(h.Sum(nil))
}

// versionOf distinguishes the configurations of replicas: by what a running bridge changes, as it
// is written in the file, so that replicas may have paths and values of variables of their own. ""
// without a file.
func versionOf(file string) string {
	data, err := os.ReadFile(file)
	if file == "" || err != nil {
		return ""
	}
	var live struct {
		Informers, Sinks any
	}
	if err := yaml.Unmarshal(data, &live); err != nil {
		return "" // it is refused
	}
	sum := sha256.Sum256(fmt.Append(nil, live)) // maps in the order of their keys
	return hex.EncodeToString(sum[:4])
}

// secretsOf returns what the files with secrets that are read once hold, by sink.
func secretsOf(c *config.Config) map[string]string {
	secrets := map[string]string{}
	for i := range c.Sinks {
		secrets[c.Sinks[i].Name] = contentOf(c.Sinks[i].ReadOnce()...)
	}
	return secrets
}

// content returns what a configuration is made of holds now. The caller holds changing.
func (r *reloader) content() string { return contentOf(r.files()...) }

// files returns what a configuration is made of: the file, the redaction key's, and what its sinks
// read once. The caller holds changing.
func (r *reloader) files() []string {
	list := []string{r.file}
	if key := r.assembler.config.Redaction.KeyFile; key != "" {
		list = append(list, key)
	}
	for i := range r.assembler.config.Sinks {
		list = append(list, r.assembler.config.Sinks[i].ReadOnce()...)
	}
	return list
}

// sameInterval is how often files are read that are not to change.
const sameInterval = time.Second

// whileSame calls changed when files have another content, or returns when ctx ends.
func whileSame(ctx context.Context, content string, files []string, changed func()) {
	tick := time.NewTicker(sameInterval)
	defer tick.Stop()
	for contentOf(files...) == content {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	changed()
}

// readFiles returns what there is now, and reports whether it has been dealt with, or ctx has
// ended.
func (r *reloader) readFiles(ctx context.Context) (content string, done bool) {
	if r.changing.Acquire(ctx, 1) != nil {
		return "", true
	}
	defer r.changing.Release(1)
	content = r.content()
	return content, content == r.done
}

// watch reloads at each SIGHUP, and when the configuration file has changed, or a file that is
// read once, until ctx ends. A change counts when it was seen twice: who writes a file may be in
// the middle of it. What could not be tried is tried again. 0 looks at no file.
func (r *reloader) watch(ctx context.Context, hangups <-chan os.Signal, interval time.Duration) {
	var ticks <-chan time.Time
	if interval > 0 {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		ticks = tick.C
	}
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			_, _ = r.reload(ctx, "SIGHUP") // what comes of it is logged
		case <-ticks:
			now, done := r.readFiles(ctx)
			if !done && now == last {
				_, _ = r.reload(ctx, "the file has changed")
			}
			last = now
		}
	}
}
