// Package cli is the command line of the bridge: its root, the commands that run or check a bridge
// or ask a running one, and the process around a bridge (signals, memory, processors, progress).
// Groups of other commands, and what all commands share, are the packages below it; what commands
// run is in package app.
package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/settings"
)

// Run runs a command of the program of this build. It returns the exit code.
func Run(
	ctx context.Context, build Build, args []string, stdin io.Reader, stdout, stderr io.Writer,
) int {
	root := newRoot(build.complete())
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitClean
	}
	code, known := CodeOf(err)
	if !known {
		code, err = ExitRefused,
			fmt.Errorf("%w\nRun '%s --help' for usage.", err, ran.CommandPath())
	}
	report(stderr, err)
	return code
}

// report prints an error for a person: problems of a configuration one per line as they are, so
// that editors can jump to them.
func report(w io.Writer, err error) {
	problems := settings.Problems(err)
	if len(problems) == 0 {
		fmt.Fprintf(w, "bridge: %s\n", terminal.Plain(strings.TrimSuffix(err.Error(), "\n")))
		return
	}
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
	fmt.Fprintf(w, "bridge: the configuration has %s\n", terminal.Amount(len(problems), "problem"))
}

func newRoot(build Build) *cobra.Command {
	root := &cobra.Command{
		Use:   "bridge",
		Short: "Streams every change of Kubernetes resources into NATS or Kafka as CloudEvents",
		Long: `bridge streams every change of chosen Kubernetes resources (built-in kinds and CRDs) into
NATS or Kafka as CloudEvents: each version of each object, in order per object, at least once, with
ids that make duplicates removable, across crashes and outages of the bridge, the broker and the API
server.

Where to begin:

  bridge watch                          look at the changes of the cluster that kubectl talks to
  bridge run                            send them to a NATS JetStream server that bridge runs itself
  bridge validate bridge.yaml           check a configuration
  bridge run --config bridge.yaml       run it

Exit codes: 0 after a clean stop, 1 when something failed while it ran, 2 when it could not start.`,
		SilenceErrors: true, // Run reports them
		SilenceUsage:  true, // a screen of flags would hide the error
	}
	root.Version = strings.TrimPrefix(build.String(), "bridge ")
	root.AddCommand(newRunCommand(build), newWatchCommand(build), newValidateCommand(),
		newSampleCommand(), newRBACCommand(), newSchemaCommand(), newVerifyCommand(),
		newVersionCommand(build))
	root.AddCommand(newStatusCommand(), newTailCommand(), newPauseCommand(), newResumeCommand(),
		newSnapshotCommand(), newLogLevelCommand(), newReloadCommand(), newTokenCommand())
	root.AddCommand(historyCommands()...)
	root.AddCommand(refusedCommands()...)
	root.AddCommand(Command())
	return root
}
