package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/informer"
)

func newStatusCommand() *cobra.Command {
	output, watch, ready, interval := "table", false, false, 2*time.Second
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what a running bridge is doing",
		Long: `status asks a running bridge, at its admin address, whether it is ready, and shows for each
sink

  state      blocked: the broker is there, but some events can't go (the top says why)
  lag        how long ago the oldest change was observed that it has not acknowledged
  pending    how many such changes there are, at most
  queued     the bytes of them that are in memory

and for each resource of an informer

  phase      listing, watching, and so on; last error says why it can't
  objects    how many exist, as of the last commits
  version    the resourceVersion that was read last
  lag        how long ago the oldest change was observed that a sink has not acknowledged
  versions behind
             how far the watermark, from which a restart resumes, is behind version;
             the API server counts versions over all resources
  waiting    the backlog between the API server and the sinks, in memory and on disk
  gaps       how often the API server had forgotten versions, since the start

With --watch on a terminal, resources that are in sync are one line.

The address is admin.address of the configuration. A bridge that listens on all addresses is asked
on this machine. A bridge in a pod, or of another user, asks for its token: admin.tokenFile, or the
one in the state directory. With --ready it asks for /readyz only, which needs no token and answers
other hosts too.

Exit codes: 0 when the bridge is ready, 1 when it is not, 2 when it can't be asked.`,
		Example: `  bridge status
  bridge status --admin-address 127.0.0.1:9090 --watch
  bridge status -o json | jq '.sinks[] | {name, state, lagSeconds}'
  bridge status --ready --admin-address bridge-0.bridge.streaming.svc:8080
  kubectl exec bridge-0 -- bridge status`,
		Args: cobra.NoArgs,
	}
	c := newClient(cmd)
	OutputFlag(cmd, &output, "table", "json", "yaml")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again, until Ctrl-C; "+
		"with --output json one line each time")
	cmd.Flags().BoolVar(&ready, "ready", false, "only whether it is ready, and why not")
	cmd.MarkFlagsMutuallyExclusive("ready", "watch")
	cmd.MarkFlagsMutuallyExclusive("ready", "output")
	cmd.Flags().DurationVar(&interval, "interval", interval, "how often, with --watch")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if interval < 100*time.Millisecond {
			return fmt.Errorf("--interval %v: want at least 100ms", interval)
		}
		at, err := c.endpoint()
		if err != nil {
			return Refused(err)
		}
		v := &statusView{
			client: newStatusClient(at, c.Token), out: cmd.OutOrStdout(),
			output: output, repeated: watch,
		}
		switch {
		case ready:
			return v.ready(cmd.Context())
		case !watch:
			return v.once(cmd.Context())
		}
		return v.watch(cmd.Context(), interval)
	}
	return cmd
}

// statusView shows a status, once or again and again.
type statusView struct {
	client   *statusClient
	out      io.Writer
	output   string
	repeated bool
	before   *answer // the one before, for rates
}

// once asks and shows. Its error has the exit code.
func (v *statusView) once(ctx context.Context) error {
	a, err := v.client.ask(ctx)
	if err != nil {
		return Refused(err)
	}
	if err := v.show(a); err != nil {
		return Refused(err)
	}
	if a.Ready {
		return nil
	}
	return Failed(fmt.Errorf("not ready: %s", terminal.Amount(len(a.Reasons), "reason")))
}

// ready asks only whether the bridge is ready, and prints what /readyz answers.
func (v *statusView) ready(ctx context.Context) error {
	ready, reasons, err := v.client.ready(ctx)
	if err != nil {
		return Refused(err)
	}
	if ready {
		fmt.Fprintln(v.out, "ready")
		return nil
	}
	fmt.Fprint(v.out, terminal.Plain(reasons))
	return Failed(errors.New("not ready"))
}

func (v *statusView) show(a *answer) error {
	defer func() { v.before = a }()
	switch v.output {
	case "json":
		return a.writeJSON(v.out, !v.repeated)
	case "yaml":
		return a.writeYAML(v.out)
	}
	file, ok := v.out.(*os.File)
	if !v.repeated || !ok || !terminal.Is(v.out) {
		return a.writeTable(v.out, v.before)
	}
	var table strings.Builder
	a.folds = true
	if err := a.writeTable(&table, v.before); err != nil {
		return err
	}
	const home = "\x1b[H\x1b[2J" // clears too
	width, height := terminal.NewScreen(file).Size()
	_, err := io.WriteString(v.out, home+fit(table.String(), width, height))
	return err
}

// fit cuts lines to the width of a terminal, and leaves out those below its end: a line that wraps
// would take the table apart, and one below the end would scroll its head away.
func fit(text string, width, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) >= height {
		lines = append(lines[:height-2], fmt.Sprintf("… %d more lines", len(lines)-height+2))
	}
	for i := range lines {
		lines[i] = terminal.Cut(lines[i], width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// watch shows the status until ctx or the process's signal ends it, and keeps on asking a bridge
// that does not answer.
func (v *statusView) watch(ctx context.Context, interval time.Duration) error {
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		a, err := v.client.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			v.before = nil
			fmt.Fprintf(v.out, "%s  %v\n", time.Now().Format(time.TimeOnly), err)
		default:
			if err := v.show(a); err != nil {
				return Refused(err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// statusClient asks a running bridge for its status.
type statusClient struct {
	*endpoint
	// Token returns the bridge's token. It is sent only to a bridge that asks for it.
	secret func() (string, error)
	http   *http.Client
}

func newStatusClient(at *endpoint, secret func() (string, error)) *statusClient {
	return &statusClient{at, secret, at.client(10 * time.Second)}
}

// answer is what a bridge says of itself.
type answer struct {
	app.ProcessStatus
	raw []byte // as it was said, with what this version may not know
	at  time.Time
	// folds leaves out of the table what is in sync.
	folds bool
}

func (k *statusClient) ask(ctx context.Context) (*answer, error) {
	a := &answer{at: time.Now()}
	var err error
	if a.raw, err = k.get(ctx, "/status"); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.raw, &a.ProcessStatus); err != nil || a.Started.IsZero() {
		return nil, fmt.Errorf("%s is not the admin endpoint of a bridge of this version: its "+
			"status can't be read", k.address)
	}
	return a, nil
}

func (k *statusClient) get(ctx context.Context, path string) ([]byte, error) {
	code, body, err := k.send(ctx, path, "")
	if err == nil && code == http.StatusUnauthorized {
		token, noToken := k.secret()
		if noToken != nil {
			return nil, fmt.Errorf("the bridge at %s asks for its token: %w", k.address, noToken)
		}
		code, body, err = k.send(ctx, path, token)
	}
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusOK:
		return body, nil
	}
	return nil, k.refusal(code, body, path)
}

// ready asks whether the bridge is ready. The reasons why not are a line each.
func (k *statusClient) ready(ctx context.Context) (ready bool, reasons string, err error) {
	const path = "/readyz"
	code, body, err := k.send(ctx, path, "")
	switch {
	case err != nil:
		return false, "", err
	case code == http.StatusOK && string(body) == "ok\n":
		return true, "", nil
	case code == http.StatusServiceUnavailable:
		return false, string(body), nil
	}
	return false, "", k.refusal(code, body, path)
}

// refusal says what an answer means that is not the one wanted.
func (k *statusClient) refusal(code int, body []byte, path string) error {
	var said struct{ Error string }
	if err := json.Unmarshal(body, &said); err == nil && said.Error != "" {
		return fmt.Errorf("the bridge at %s refuses: %s", k.address, said.Error)
	}
	if err := k.wantsTLS(code, body); err != nil {
		return err
	}
	return fmt.Errorf("%s is not the admin endpoint of a bridge: it answers %d %s to %s", k.address,
		code, http.StatusText(code), path)
}

func (k *statusClient) send(
	ctx context.Context, path, token string,
) (code int, body []byte, err error) {
	response, err := k.open(ctx, path, token)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	const longest = 64 << 20
	if body, err = io.ReadAll(io.LimitReader(response.Body, longest)); err != nil {
		return 0, nil, k.unanswered(err)
	}
	return response.StatusCode, body, nil
}

// open sends a request, with a token if there is one. The caller closes the answer's body.
func (k *statusClient) open(ctx context.Context, path, token string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url(path), nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := k.http.Do(request)
	if err != nil {
		return nil, k.unanswered(err)
	}
	return response, nil
}

// unanswered says in plain words that nobody is there.
func (k *statusClient) unanswered(err error) error {
	switch timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no bridge answers at %s: nothing listens there. Does one run, and is "+
			"this its admin.address (--config, --admin-address)?", k.address)
	case ok && timeout.Timeout():
		return fmt.Errorf("no bridge answers at %s within %v", k.address, k.http.Timeout)
	default:
		return fmt.Errorf("no bridge answers at %s: %w", k.address, err)
	}
}

// untilInterrupted returns a context that SIGINT and SIGTERM end.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// writeJSON writes what the bridge has said, as one document or one line.
func (a *answer) writeJSON(w io.Writer, pretty bool) error {
	if pretty {
		return terminal.PrintIndented(w, a.raw)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, a.raw); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := line.WriteTo(w)
	return err
}

// writeYAML writes a document that others may follow.
func (a *answer) writeYAML(w io.Writer) error {
	if _, err := io.WriteString(w, "---\n"); err != nil {
		return err
	}
	return terminal.PrintYAML(w, json.RawMessage(a.raw))
}

// writeTable writes for people. Rates need the answer before, which may be nil.
func (a *answer) writeTable(w io.Writer, before *answer) error {
	a.writeHead(w)
	if a.Status == nil {
		return nil
	}
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "\nSINK\tSTATE\tLAG\tPENDING\tPER SECOND\tPUBLISHED\tQUEUED\tRETRIES\tDEAD "+
		"LETTERS\tLAST ERROR")
	for i := range a.Sinks {
		a.writeSink(t, &a.Sinks[i], before)
	}
	if err := t.Flush(); err != nil { // the columns of what follows are others
		return err
	}
	shown, folded := a.unitsToShow()
	if folded > 0 {
		fmt.Fprintf(w, "\n%s in sync\n", terminal.Amount(folded, "resource"))
	}
	if len(shown) == 0 {
		return nil
	}
	fmt.Fprintln(t, "\nINFORMER\tRESOURCE\tPHASE\tOBJECTS\tVERSION\tLAG\tVERSIONS BEHIND\t"+
		"WAITING\tON DISK\tGAPS\tLAST ERROR")
	for _, u := range shown {
		writeUnit(t, u)
	}
	return t.Flush()
}

// unitsToShow returns all units, or in a status that is shown again and again those in trouble, and
// how many others there are: a terminal has no place for all. The lag of a sink is the sink's.
func (a *answer) unitsToShow() (shown []*informer.Status, folded int) {
	for i := range a.Informers {
		u := &a.Informers[i]
		if a.folds && u.Synced && u.LastError == "" && len(u.Gaps) == 0 {
			folded++
			continue
		}
		shown = append(shown, u)
	}
	return shown, folded
}

func (a *answer) writeHead(w io.Writer) {
	state := "ready"
	if !a.Ready {
		state = "not ready"
	}
	name := "bridge"
	if a.Status != nil {
		name = a.Cluster
	}
	fmt.Fprintf(w, "%s: %s (bridge %s, runs for %s)\n", name, state,
		cmp.Or(a.Version, "of unknown version"), sinceStart(a.Started))
	for _, r := range a.Reasons {
		fmt.Fprintf(w, "  %s: %s", r.What, terminal.OneLine(r.Message))
		if !r.Since.IsZero() {
			fmt.Fprintf(w, " (for %v)", time.Since(r.Since).Round(time.Second))
		}
		fmt.Fprintln(w)
	}
	if r := a.Reload; r != nil && !r.RefusedSince.IsZero() {
		fmt.Fprintf(w, "configuration: the file is %s since %s (for %v), and the one of before runs\n",
			r.Result, query.ShowTime(r.RefusedSince), time.Since(r.RefusedSince).Round(time.Second))
		for _, problem := range r.Problems {
			fmt.Fprintf(w, "  %s\n", terminal.OneLine(problem))
		}
	}
	if s := a.Status; s != nil {
		fmt.Fprintf(w, "state: %s, %s\n", cmp.Or(s.State.Dir, "in memory"),
			terminal.Bytes(int64(s.State.Bytes)))
	}
}

func writeUnit(w io.Writer, u *informer.Status) {
	resource, objects, behind := u.Resource, "-", "-"
	if u.Namespace != "" {
		resource += " in " + u.Namespace
	}
	if u.Objects != nil {
		objects = strconv.Itoa(*u.Objects)
	}
	if u.VersionsBehind != nil {
		behind = strconv.FormatUint(*u.VersionsBehind, 10)
	}
	phase := u.Phase
	if !u.Synced {
		phase += " (not in sync)"
	}
	gaps := 0
	for _, n := range u.Gaps {
		gaps += n
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", u.Informer, resource, phase,
		objects, cmp.Or(u.Version, "-"),
		age(u.OldestSeconds), behind, terminal.Bytes(int64(u.QueuedBytes+u.LogBytes)),
		terminal.Bytes(u.SpoolBytes), gaps, cmp.Or(terminal.OneLine(u.LastError), "-"))
}

func (a *answer) writeSink(w io.Writer, s *bridge.SinkStatus, before *answer) {
	lastError := "-"
	if s.LastError != "" {
		over := ""
		if !s.LastErrorOver.IsZero() {
			over = fmt.Sprintf(", over for %v", time.Since(s.LastErrorOver).Round(time.Second))
		}
		lastError = fmt.Sprintf("%s (%v ago%s)", terminal.OneLine(s.LastError),
			time.Since(s.LastErrorAt).Round(time.Second), over)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%d\t%d\t%s\n", s.Name, s.State,
		seconds(s.LagSeconds), s.PendingChanges, a.rate(s, before), s.Published,
		terminal.Bytes(int64(s.QueuedBytes)), s.Retries, s.DeadLetters, lastError)
}

// rate returns what a sink has published per second since the answer before.
func (a *answer) rate(s *bridge.SinkStatus, before *answer) string {
	if before == nil || before.Status == nil {
		return "-"
	}
	i := slices.IndexFunc(before.Sinks,
		func(other bridge.SinkStatus) bool { return other.Name == s.Name })
	if i < 0 || before.Sinks[i].Published > s.Published { // it was started again
		return "-"
	}
	n := float64(s.Published - before.Sinks[i].Published)
	return strconv.FormatFloat(n/a.at.Sub(before.at).Seconds(), 'f', 1, 64)
}

// age returns the oldest of all sinks.
func age(bySink map[string]float64) string {
	return seconds(slices.Max(append(slices.Collect(maps.Values(bySink)), 0)))
}

func sinceStart(began time.Time) string {
	if began.IsZero() {
		return "unknown time"
	}
	return time.Since(began).Round(time.Second).String()
}

// seconds is "0s", "120ms", "3m20s".
func seconds(n float64) string {
	d := time.Duration(n * float64(time.Second))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
