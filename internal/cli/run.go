package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
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
		r := &runner{cmd: cmd, build: build, input: app.NewConfigInput(s.File, s.Load), file: s.File != ""}
		r.progress = newProgress(c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		return r.run(c)
	}
	return cmd
}

// runner sets the process up, and runs a bridge in it.
type runner struct {
	cmd   *cobra.Command
	build Build
	input *app.ConfigInput
	file  bool // the configuration is from a file
	// progress is shown on the terminal; nil for none.
	progress *progress
	// endsForbidden ends the run where nothing may be read.
	endsForbidden bool
}

func (r *runner) run(c *config.Config) error {
	stderr := r.cmd.ErrOrStderr()
	options := app.Options{
		Config: c, Input: r.input, Version: r.build.Version, Stdout: r.cmd.OutOrStdout(),
	}
	if r.progress != nil {
		stderr, options.Progress = r.progress.screen, r.progress.run
	}
	options.Log, options.Level = NewLeveledLogger(c.Log, stderr)
	sampleMemory(c.Admin.Pprof && c.Admin.Address != "")
	parent, forbid := context.WithCancelCause(r.cmd.Context())
	defer forbid(nil)
	ctx, stop := UntilSignal(parent, options.Log, os.Exit)
	if r.endsForbidden {
		options.Progress = func(ctx context.Context, status func() app.ProcessStatus) {
			if err := untilForbidden(ctx, status); err != nil {
				forbid(err)
			}
		}
	}
	var bounding sync.WaitGroup
	defer bounding.Wait()
	defer stop()
	bounding.Go(func() { boundProcs(ctx, resource.LargeSeen(), newProcessorWaits().grew) })
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
	err := app.Run(ctx, options)
	if why, ok := errors.AsType[*forbiddenError](context.Cause(parent)); ok {
		return Refused(errors.Join(why, err))
	}
	return ended(err)
}

// forbiddenError is why nothing could be read.
type forbiddenError struct{ reason string }

func (e *forbiddenError) Error() string {
	if grant := grantOf(e.reason); grant != "" {
		return e.reason + "\nWho may grant rights can grant this one with:\n" + grant
	}
	return e.reason
}

// missingRight is what the API server says of a right that a user lacks. Names that a shell would
// read as something else do not match: they are to be pasted.
var missingRight = regexp.MustCompile(`User "([^"$\x60\\]+)" cannot \w+ resource "([\w./-]+)" in API group "([\w.-]*)"` +
	`(?: in the namespace "([\w-]+)")?`)

// grantOf returns the commands that grant what the API server has refused; "" where it names no
// user and resource.
func grantOf(reason string) string {
	found := missingRight.FindStringSubmatch(reason)
	if found == nil {
		return ""
	}
	user, name, group, namespace := found[1], found[2], found[3], found[4]
	if group != "" {
		name += "." + group
	}
	to := "--user=" + strconv.Quote(user)
	if account, isAccount := strings.CutPrefix(user, "system:serviceaccount:"); isAccount {
		to = "--serviceaccount=" + strconv.Quote(account)
	}
	kind, in := "clusterrole", ""
	if namespace != "" {
		kind, in = "role", " -n "+namespace
	}
	return fmt.Sprintf("  kubectl create %s bridge-reader%s --verb=get,list,watch --resource=%s\n"+
		"  kubectl create %sbinding bridge-reader%s --%s=bridge-reader %s",
		kind, in, name, kind, in, kind, to)
}

// untilForbidden waits until the API server has refused every resource for some tries. It returns
// nil when ctx ends.
func untilForbidden(ctx context.Context, status func() app.ProcessStatus) error {
	const tries = 6
	for refused := 0; refused < tries; {
		if ratelimit.Sleep(ctx, progressInterval) != nil {
			return nil
		}
		s := status()
		reason, all := "", s.Status != nil && len(s.Status.Informers) > 0
		for i := range informersOf(&s) {
			u := &s.Informers[i]
			isForbidden := !u.Synced && strings.Contains(strings.ToLower(u.LastError), "forbidden")
			if all = all && isForbidden; isForbidden {
				reason = u.LastError
			}
		}
		if refused++; !all {
			refused = 0
		}
		if refused == tries {
			return &forbiddenError{reason}
		}
	}
	return nil
}

func informersOf(s *app.ProcessStatus) []informer.Status {
	if s.Status == nil {
		return nil
	}
	return s.Status.Informers
}

// ended returns the end of a bridge that was run, with the code that it means.
func ended(err error) error {
	if _, ok := errors.AsType[*app.StartError](err); ok {
		return Refused(err)
	}
	return Failed(err)
}

// onHangup returns a channel that has a value for each SIGHUP, until ctx ends.
func onHangup(ctx context.Context) <-chan os.Signal {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	context.AfterFunc(ctx, func() { signal.Stop(hangups) })
	return hangups
}

const (
	// progressInterval is how often progress is redrawn.
	progressInterval = 500 * time.Millisecond
	// ratesOver is the time over which rates are taken, as a multiple of progressInterval.
	ratesOver = 6
)

// progress shows on a terminal how far a running bridge is: a line for each resource that is not in
// sync, with its rate; then one line of state.
type progress struct {
	screen  *terminal.Screen
	command string           // that this program was started with
	address string           // of the admin server; "" for none
	samples []progressSample // of the last ratesOver intervals
	// keeps: it keeps a history. isSecured: the admin server speaks TLS. isWelcomed: the banner was
	// shown.
	keeps, isSecured, isWelcomed bool
}

// progressSample is what had been read and sent at a time.
type progressSample struct {
	at     time.Time
	counts map[string]float64
}

// newProgress returns nil where progress can't be shown: standard error is no terminal, the log is
// for programs, or a sink prints its events on this terminal.
func newProgress(c *config.Config, stdout, stderr io.Writer) *progress {
	if c.Log.Format == "json" {
		return nil
	}
	for i := range c.Sinks {
		if c.Sinks[i].Stdout != nil && terminal.Is(stdout) {
			return nil
		}
	}
	if s := terminal.AsScreen(stderr); s != nil {
		keeps := slices.ContainsFunc(c.Sinks, func(s config.Sink) bool { return s.History != nil })
		return &progress{
			screen: s, command: os.Args[0], address: c.Admin.Address, keeps: keeps,
			isSecured: c.Admin.TLS.CertFile != "",
		}
	}
	return nil
}

// run shows the status until ctx ends, and takes it off again.
func (p *progress) run(ctx context.Context, status func() app.ProcessStatus) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	defer p.screen.Show(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s := status()
			if banner := p.banner(&s); banner != "" {
				_, _ = p.screen.Write([]byte(banner)) // a terminal that is gone is noticed elsewhere
			}
			_, height := p.screen.Size()
			p.screen.Show(p.lines(&s, now, height))
		}
	}
}

// banner returns where to look and what to try next, once: when everything is in sync first.
func (p *progress) banner(s *app.ProcessStatus) string {
	if p.isWelcomed || s.Status == nil || len(s.Informers) == 0 {
		return ""
	}
	objects := 0
	for i := range s.Informers {
		if u := &s.Informers[i]; !u.Synced {
			return ""
		} else if u.Objects != nil {
			objects += *u.Objects
		}
	}
	p.isWelcomed = true
	names := make([]string, len(s.Sinks))
	for i := range s.Sinks {
		names[i] = s.Sinks[i].Name
	}
	lines := []string{""}
	at := ""
	if p.address != "" {
		scheme := "http"
		if p.isSecured {
			scheme = "https"
		}
		lines = append(lines, "  page     "+scheme+"://"+p.address+"/")
	}
	if p.address != "" && p.address != admin.DefaultAddress {
		at = " --admin-address " + p.address
	}
	lines = append(lines,
		fmt.Sprintf("  reading  %s, %s", terminal.Amount(len(s.Informers), "resource"),
			terminal.Amount(objects, "object")),
		"  sinks    "+strings.Join(names, ", "),
		"  next     "+p.command+" status"+at,
		"           "+p.command+" tail"+at)
	if p.keeps {
		lines = append(lines, "           "+p.command+" timeline -n default")
	}
	lines = append(lines, "")
	return strings.Join(lines, "\n") + "\n"
}

// lines returns what is shown of a status, at most half a terminal of a height.
func (p *progress) lines(s *app.ProcessStatus, now time.Time, height int) []string {
	if s.Status == nil {
		return []string{"starting: " + terminal.OneLine(s.Starting)}
	}
	p.remember(s.Status, now)
	var syncing []*informer.Status
	listed, total := 0, 0
	for i := range s.Informers {
		u := &s.Informers[i]
		if u.Phase == string(informer.Gone) {
			continue
		}
		total++
		listed += u.Listed
		if !u.Synced && u.PausedBy == nil {
			syncing = append(syncing, u)
		}
	}
	if len(syncing) == 0 {
		return []string{p.state(s, total)}
	}
	lines := []string{fmt.Sprintf("syncing: %d of %d resources in sync, %d objects listed%s",
		total-len(syncing), total, listed, p.rate("listed"))}
	for i, u := range syncing {
		if i == height/2-1 && len(syncing) > i+1 {
			return append(lines, fmt.Sprintf("  and %d more", len(syncing)-i))
		}
		lines = append(lines, p.resource(u))
	}
	return lines
}

// resource returns the line of a resource that is not in sync.
func (p *progress) resource(u *informer.Status) string {
	name := u.Resource
	if u.Namespace != "" {
		name += " in " + u.Namespace
	}
	line := fmt.Sprintf("  %-34s %-11s", name, u.Phase)
	if u.Phase == string(reflector.Listing) {
		line += fmt.Sprintf(" %d objects%s", u.Listed, p.rate("listed "+key(u)))
	}
	if u.LastError != "" {
		line += " " + terminal.OneLine(u.LastError)
	}
	return line
}

// state returns the one line of a bridge that is in sync.
func (p *progress) state(s *app.ProcessStatus, resources int) string {
	objects := 0
	for i := range s.Informers {
		if n := s.Informers[i].Objects; n != nil {
			objects += *n
		}
	}
	parts := []string{
		fmt.Sprintf("in sync: %s, %s", terminal.Amount(resources, "resource"),
			terminal.Amount(objects, "object")),
	}
	for i := range s.Sinks {
		parts = append(parts, p.sink(&s.Sinks[i]))
	}
	if len(s.Reasons) > 0 { // it comes last: it may be cut
		parts[0] = "not ready"
		parts = append(parts, s.Reasons[0].What+": "+terminal.OneLine(s.Reasons[0].Message))
	}
	return strings.Join(parts, " | ")
}

func (p *progress) sink(s *bridge.SinkStatus) string {
	text := fmt.Sprintf("%s: %d sent%s", s.Name, s.Published, p.rate("sent "+s.Name))
	switch {
	case s.PausedBy != nil || s.Paused:
		text += ", paused"
	case !s.Connected:
		text += ", unavailable"
	}
	if s.QueuedItems > 0 {
		text += fmt.Sprintf(", %d queued", s.QueuedItems)
	}
	return text
}

func key(u *informer.Status) string { return u.Informer + " " + u.Resource + " " + u.Namespace }

// remember takes a sample, and forgets those that are too old for a rate.
func (p *progress) remember(s *bridge.Status, now time.Time) {
	counts := map[string]float64{}
	for i := range s.Informers {
		u := &s.Informers[i]
		counts["listed"] += float64(u.Listed)
		counts["listed "+key(u)] = float64(u.Listed)
	}
	for i := range s.Sinks {
		counts["sent "+s.Sinks[i].Name] = float64(s.Sinks[i].Published)
	}
	p.samples = append(p.samples, progressSample{now, counts})
	if len(p.samples) > ratesOver+1 {
		p.samples = p.samples[1:]
	}
}

// rate returns what was counted per second over the samples, as ", 310/s"; "" where it is not
// known.
func (p *progress) rate(what string) string {
	first, last := &p.samples[0], &p.samples[len(p.samples)-1]
	before, known := first.counts[what]
	elapsed := last.at.Sub(first.at).Seconds()
	if n := last.counts[what] - before; known && elapsed > 0 && n >= 0 {
		return fmt.Sprintf(", %.0f/s", n/elapsed)
	}
	return ""
}

func newWatchCommand(build Build) *cobra.Command {
	var selected selection
	var onlyChanges bool
	output := "auto"
	cmd := &cobra.Command{
		Use:   "watch [RESOURCE]...",
		Short: "Print changes on the terminal: a quick look",
		Long: `watch prints the changes of resources as they happen, until Ctrl-C. Resources are named as
kubectl names them, custom ones too; without a name it prints changes of every resource but Leases
and Events. It begins with the objects that exist.

It sends nothing, keeps its state in memory, and has no admin server unless --admin-address is
given. On a terminal it prints a short coloured line per event (NO_COLOR turns the colour off),
elsewhere structured CloudEvents, a line each.

With --config it watches what the configuration selects. Secrets are redacted as the configuration
says.

Exit codes: 0 after a clean stop, 1 when something failed while it ran, 2 when it could not start,
or the API server refuses to show any of the resources.`,
		Example: `  bridge watch                                     every resource
  bridge watch pods -n shop -l app=web
  bridge watch deployments.apps,services --watch-only
  bridge watch pods --filter 'object.status.phase == "Failed"'
  bridge watch secrets -o json | jq .manager`,
	}
	s := NewSendingSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context", "cluster",
		"admin.address", "log.level", "log.format")
	selected.addFlags(cmd)
	cmd.Flags().BoolVar(&onlyChanges, "watch-only", false, "leave out the objects that exist")
	OutputFlag(cmd, &output, "auto", "short", "json")
	cmd.RunE = func(cmd *cobra.Command, resources []string) error {
		load := func() (*config.Config, error) {
			c, err := s.Load()
			if err != nil {
				return nil, err
			}
			if c.Log.Level == "info" {
				c.Log.Level = "warn" // what is printed is the answer
			}
			printOnly(c, output, cmd.Flags().Changed("admin-address"))
			if onlyChanges {
				for i := range c.Informers {
					c.Informers[i].Snapshot = "never"
				}
			}
			return c, Refused(selected.apply(c, namesOf(resources)))
		}
		c, err := load()
		if err != nil {
			return err
		}
		r := &runner{
			cmd: cmd, build: build, input: app.NewConfigInput(s.File, load), file: s.File != "",
			endsForbidden: true,
		}
		return r.run(c)
	}
	return cmd
}

// printOnly changes a configuration so that it sends and keeps nothing.
func printOnly(c *config.Config, format string, keepAdmin bool) {
	const name = "stdout"
	sink := config.Default().Sinks[0] // for its other defaults
	sink.Name, sink.NATS, sink.Stdout = name, nil, &stdout.Config{Format: format}
	c.Sinks = []config.Sink{sink}
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
