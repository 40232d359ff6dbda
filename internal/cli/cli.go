// Package cli is the command line of the bridge.
//
// In: arguments, flags, a configuration, signals. Out: tables, JSON and exit codes; what the
// commands run is in package app, what they ask a history in package history/ask.
//
// The commands are in groups: those that run a bridge or check its surroundings (run.go, check.go),
// that talk to a running bridge (client.go, status.go, tail.go), that send refused events again
// (refused.go, resend.go), that read streams and histories (verify.go, history.go and the files of
// its questions, serve.go), and that look into the state of a stopped bridge (statedir.go).
// process.go is the process around a bridge: its log, signals, memory and processors.
//
// Run parses the arguments, runs one command until it ends or a signal ends it, and returns the
// exit code. A command that is asked to stop drains first; a second signal ends the process.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
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
		Short: "Streams every change of Kubernetes resources into NATS, Kafka or HTTP as CloudEvents",
		Long: `bridge streams every change of chosen Kubernetes resources (built-in kinds and CRDs) into
NATS, Kafka or HTTP as CloudEvents: each version of each object, in order per object, at least
once, with ids that make duplicates removable, across crashes and outages of the bridge, the broker
and the API server.

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
	root.AddCommand(newStatusCommand(), newTailCommand(), newTreeCommand(), newPauseCommand(), newResumeCommand(),
		newSnapshotCommand(), newLogLevelCommand(), newReloadCommand(), newTokenCommand())
	root.AddCommand(historyCommands()...)
	root.AddCommand(refusedCommands()...)
	root.AddCommand(newStateDirCommand())
	groupCommands(root)
	foldHelp(root)
	return root
}

// groups are the parts of the list of commands, each with the names of its commands.
var groups = []struct{ title, names string }{
	{"Stream changes:", "run watch tail sample snapshot"},
	{"Ask the history:", "timeline history who show diff state coverage serve mcp archive"},
	{"Operate a bridge:", "status tree pause resume reload log-level deadletters undelivered statedir verify"},
	{"Set up:", "validate rbac audit schema token version"},
}

// groupCommands puts commands into their groups: a list of 26 is not read.
func groupCommands(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range root.Commands() {
			if slices.Contains(strings.Fields(g.names), c.Name()) {
				c.GroupID = g.title
			}
		}
	}
	root.SetHelpCommandGroupID("Set up:")
	root.SetCompletionCommandGroupID("Set up:")
}

// Build is the facts of a build.
type Build struct {
	// of the module; "devel" for a build out of a working tree
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`   // of the repository
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // whether there were changes beyond the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// complete adds the facts that the go tool writes into every binary to those that are given.
func (b Build) complete() Build {
	b.Go, b.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(b.Version, "devel")
		return b
	}
	b.Version = cmp.Or(b.Version, strings.Trim(info.Main.Version, "()"), "devel")
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = cmp.Or(b.Commit, s.Value)
		case "vcs.time":
			b.Time = cmp.Or(b.Time, s.Value)
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is "bridge v1.2.3 (commit 0123abc of 2026-11-21T10:00:00Z, go1.26.8, linux/amd64)".
func (b Build) String() string {
	var facts []string
	if b.Commit != "" {
		commit := "commit " + b.Commit[:min(len(b.Commit), 12)]
		if b.Modified {
			commit += " with changes"
		}
		facts = append(facts, commit+" of "+b.Time)
	}
	facts = append(facts, b.Go, b.Platform)
	return fmt.Sprintf("bridge %s (%s)", b.Version, strings.Join(facts, ", "))
}

func newVersionCommand(build Build) *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: "version prints the version of bridge, the commit that it was built from, and the " +
			"Go version and platform that it was built for.",
		Example: `  bridge version
  bridge version --output json`,
		Args: cobra.NoArgs,
	}
	OutputFlag(cmd, &output, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch output {
		case "json":
			return Failed(terminal.PrintJSON(cmd.OutOrStdout(), build))
		case "yaml":
			return Failed(terminal.PrintYAML(cmd.OutOrStdout(), build))
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), build)
		return Failed(err)
	}
	return cmd
}

// Exit codes.
const (
	ExitClean   = 0
	ExitFailed  = 1 // something failed while it ran
	ExitRefused = 2 // it did not start: usage, configuration, surroundings
)

// exitError is an error with the code that the process ends with. Other errors come from cobra, and
// are about usage.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// Failed returns an error of something that failed while it ran; nil for nil.
func Failed(err error) error { return withCode(ExitFailed, err) }

// Refused returns an error because of which a command does not start; nil for nil.
func Refused(err error) error { return withCode(ExitRefused, err) }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// CodeOf returns the code of a command that ended with an error. It is not known for one about
// usage, which is of cobra.
func CodeOf(err error) (code int, known bool) {
	e, ok := errors.AsType[*exitError](err)
	if !ok {
		return 0, false
	}
	return e.code, true
}

// OutputFlag adds --output, which takes one of values. The first is the default.
func OutputFlag(cmd *cobra.Command, output *string, values ...string) {
	*output = values[0]
	cmd.Flags().VarP(&choice{output, values}, "output", "o", "one of "+strings.Join(values, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values,
		cobra.ShellCompDirectiveNoFileComp))
}

// choice is a flag that takes one of values.
type choice struct {
	chosen *string
	values []string
}

func (c *choice) String() string { return *c.chosen }
func (c *choice) Type() string   { return "string" }

func (c *choice) Set(text string) error {
	if !slices.Contains(c.values, text) {
		return fmt.Errorf("want one of %s", strings.Join(c.values, ", "))
	}
	*c.chosen = text
	return nil
}

// helpWidth is that of a terminal as it opens.
const helpWidth = 80

// foldHelp prints the help of all commands with lines that fit into a terminal.
func foldHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text strings.Builder
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		_, _ = io.WriteString(out, foldText(text.String()))
	})
}

// foldText fills paragraphs again, and folds what is indented below its second column.
func foldText(text string) string {
	var out strings.Builder
	var paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			foldWords(&out, strings.Join(paragraph, " "), "", "")
		}
		paragraph = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		switch columns := secondColumn.FindString(line); {
		case line != "" && line[0] != ' ':
			paragraph = append(paragraph, line)
			continue
		case len(line) <= helpWidth:
			end()
			out.WriteString(line + "\n")
		case columns != "" && len(columns) < helpWidth*2/3:
			end()
			foldWords(&out, line, strings.Repeat(" ", len(columns)), "")
		case columns != "":
			end()
			foldWords(&out, line, "          ", "")
		default: // a command to paste
			end()
			foldWords(&out, line, "      ", ` \`)
		}
	}
	end()
	return out.String()
}

var secondColumn = regexp.MustCompile(`^ +\S.*?  +`)

// foldWords writes a line as several, of which the first is indented as it was. Spaces within the
// line stay.
func foldWords(out *strings.Builder, line, indent, mark string) {
	for len(line) > helpWidth {
		at := strings.LastIndexByte(line[:helpWidth+1-len(mark)], ' ')
		if strings.TrimSpace(line[:max(at, 0)]) == "" {
			break // one long word
		}
		out.WriteString(strings.TrimRight(line[:at], " ") + mark + "\n")
		line = indent + strings.TrimLeft(line[at:], " ")
	}
	out.WriteString(line + "\n")
}
