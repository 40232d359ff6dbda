package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
)

func newStatusCommand() *cobra.Command {
	output, watch, ready, interval := "table", false, false, 2*time.Second
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what a running bridge is doing",
		Long: `status asks a running bridge, at its admin address, whether it is ready, and shows for each
resource of an informer

  phase      listing, watching, and so on; last error says why it can't
  objects    how many exist, as of the last commits
  version    the resourceVersion that was read last
  lag        how long ago the oldest change was observed that a sink has not acknowledged
  behind     how far the watermark, from which a restart resumes, is behind version; the API server counts versions over all resources
  waiting    the backlog between the API server and the sinks, in memory and on disk
  gaps       how often the API server had forgotten versions, since the start

and for each sink whether its broker is there (blocked: it is, but some events can't go until
somebody acts), what it has acknowledged, its backlog, and what went wrong last.

The address is admin.address of the configuration. A bridge that listens on all addresses is asked
on this machine. A bridge in a pod, or of another user, asks for its token: admin.tokenFile, or the
one in the state directory. With --ready it asks for /readyz only, which needs no token and answers
other hosts too.

Exit codes: 0 when the bridge is ready, 1 when it is not, 2 when it can't be asked.`,
		Example: `  bridge status
  bridge status --admin-address 127.0.0.1:9090 --watch
  bridge status --config bridge.yaml --output json | jq '.sinks[] | {name, queuedItems}'
  bridge status --ready --admin-address bridge-0.bridge.streaming.svc:8080
  kubectl exec bridge-0 -- bridge status`,
		Args: cobra.NoArgs,
	}
	c := New(cmd)
	OutputFlag(cmd, &output, "table", "json", "yaml")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again, until Ctrl-C; "+
		"with --output json one line each time")
	cmd.Flags().BoolVar(&ready, "ready", false, "only whether it is ready, and why not")
	cmd.MarkFlagsMutuallyExclusive("ready", "watch")
	cmd.MarkFlagsMutuallyExclusive("ready", "output")
	cmd.Flags().DurationVar(&interval, "interval", interval, "how often, with --watch")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := CheckOutput(output, "table", "json", "yaml"); err != nil {
			return err
		}
		if interval < 100*time.Millisecond {
			return fmt.Errorf("--interval %v: want at least 100ms", interval)
		}
		address, err := c.Address()
		if err != nil {
			return Refused(err)
		}
		v := &statusView{
			client: newStatusClient(address, c.Token), out: cmd.OutOrStdout(),
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
