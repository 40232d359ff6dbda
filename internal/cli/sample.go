package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/cli/terminal"
)

// sampleOptions are the flags of sample.
type sampleOptions struct {
	events  int
	timeout time.Duration
	output  string

	selected selection
}

func newSampleCommand() *cobra.Command {
	o := sampleOptions{}
	cmd := &cobra.Command{
		Use:   "sample [RESOURCE]...",
		Short: "Print the first events of a configuration, and send none",
		Long: `sample watches the resources of a configuration and prints the first events as they would
be sent: for each sink the subject or the topic and key, the headers, and the message. It sends
nothing, connects to no broker, and neither reads nor writes the state directory: what it prints is
what a first start would send first. It ends when it has printed all that exists; with nothing to
print it waits for changes until the timeout.

Resources take the place of the configuration's informers, and selectors narrow them, as in 'bridge
watch'. Secrets are redacted as the configuration says.

Exit codes: 0 also when there were fewer events, 2 when it could not start.`,
		Example: `  bridge sample                                          of the default configuration
  bridge sample --config bridge.yaml --events 3
  bridge sample deployments.apps -n shop --config bridge.yaml
  bridge sample --config bridge.yaml --output json | jq .subject`,
	}
	s := NewSendingSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context", "cluster",
		"log.level", "log.format")
	cmd.Flags().IntVar(&o.events, "events", 10, "how many events to print of each sink")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for them")
	o.selected.addFlags(cmd)
	OutputFlag(cmd, &o.output, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, resources []string) error {
		if err := errors.Join(CheckOutput(o.output, "text", "json"), o.validate()); err != nil {
			return err
		}
		c, err := s.Load()
		if err != nil {
			return err
		}
		if err := o.selected.apply(c, namesOf(resources)); err != nil {
			return Refused(err)
		}
		return sample(cmd, c, o)
	}
	return cmd
}

func (o *sampleOptions) validate() error {
	if o.events < 1 || o.timeout <= 0 {
		return errors.New("--events and --timeout must be above 0")
	}
	return nil
}

func sample(cmd *cobra.Command, c *config.Config, o sampleOptions) error {
	// What is printed is the answer, so the log only speaks up for what keeps it from coming.
	if c.Log.Level == "info" {
		c.Log.Level = "warn"
	}
	log := NewLogger(c.Log, cmd.ErrOrStderr())
	ctx, stop := UntilSignal(cmd.Context(), log, os.Exit)
	defer stop()
	printed, all, err := app.Sample(ctx, app.SampleOptions{
		Config: c, Log: log, Out: cmd.OutOrStdout(), Events: o.events, Timeout: o.timeout,
		JSON: o.output == "json",
	})
	switch {
	case err != nil || ctx.Err() != nil:
	case all:
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s: this is all that there is now\n",
			terminal.Amount(printed, "event"))
	case printed < o.events:
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s within %v\n", terminal.Amount(printed, "event"),
			o.timeout)
	}
	return ended(err)
}
