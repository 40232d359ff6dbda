// Package cli is the command line of the bridge: its commands and their flags, tables and questions
// on a terminal, the client of a running bridge's admin server, and the process around a bridge
// (log, signals, memory, exit codes). What the commands run is in package app.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
)

// Exit codes.
const (
	exitClean   = 0
	exitFailed  = 1 // something failed while it ran
	exitRefused = 2 // it did not start: usage, configuration, surroundings
)

// exitError is an error with the code that the process ends with. Other errors come from cobra, and
// are about usage.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func failed(err error) error  { return withCode(exitFailed, err) }
func refused(err error) error { return withCode(exitRefused, err) }

// ended is the end of a bridge that was run, with the code that it means.
func ended(err error) error {
	if _, ok := errors.AsType[*app.StartError](err); ok {
		return refused(err)
	}
	return failed(err)
}

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// Run runs a command of the program of this build. It returns the exit code.
func Run(
	ctx context.Context, build Build, args []string, stdin io.Reader, stdout, stderr io.Writer,
) int {
	root := newRoot(build.complete())
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitClean
	}
	code := exitRefused
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
	} else {
		err = fmt.Errorf("%w\nRun '%s --help' for usage.", err, command.CommandPath())
	}
	report(stderr, err)
	return code
}

// report prints an error for a person: problems of a configuration one per line as they are, so
// that editors can jump to them.
func report(w io.Writer, err error) {
	problems := config.Problems(err)
	if len(problems) == 0 {
		fmt.Fprintf(w, "bridge: %s\n", plain(strings.TrimSuffix(err.Error(), "\n")))
		return
	}
	for _, p := range problems {
		fmt.Fprintln(w, p)
	}
	fmt.Fprintf(w, "bridge: the configuration has %s\n", app.Plural(len(problems), "problem"))
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
		newSampleCommand(),
		newRBACCommand(), newSchemaCommand(), newStatusCommand(), newVerifyCommand(), newArchiveCommand(),
		newStateDirCommand(),
		newUndeliveredCommand(), newDeadLettersCommand(), newVersionCommand(build))
	root.AddCommand(newHistoryCommand(), newShowCommand(), newDiffCommand(), newTimelineCommand(),
		newStateCommand(), newServeCommand())
	root.AddCommand(newPauseCommand(), newResumeCommand(), newSnapshotCommand(),
		newLogLevelCommand(), newReloadCommand(), newTokenCommand(), newTailCommand())
	return root
}

// configFlag adds --config, whose default is $BRIDGE_CONFIG.
func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "config", "c", os.Getenv("BRIDGE_CONFIG"),
		"path of the configuration, YAML; none: watch everything, run a NATS server "+
			"($BRIDGE_CONFIG)")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml") // fails only for a flag that is not there
}
