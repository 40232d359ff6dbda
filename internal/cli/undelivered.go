package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/publisher/refused"
)

func newUndeliveredCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undelivered",
		Short: "List, print, send and remove events that no broker accepted",
		Long: `undelivered shows the events in the folder 'undelivered' of the state directory: a sink
refused them permanently, and so did its dead letters, or none are configured. They count against
state.maxUndeliveredBytes (256 MiB by default). At that limit such events block their objects again.

It reads the state directory of --config or --state-dir, also while a bridge runs.

After you have fixed what refused them, 'bridge undelivered send' sends them again. Or publish the
present state of all objects with 'bridge snapshot INFORMER --sink NAME', and remove them.`,
		Example: `  bridge undelivered ls
  bridge undelivered get 3f1c > event.json
  bridge undelivered send --all --sink lake
  bridge undelivered rm 3f1c
  bridge undelivered rm --all --sink lake`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newUndeliveredListCommand(), newUndeliveredGetCommand(),
		newUndeliveredSendCommand(), newUndeliveredRemoveCommand())
	return cmd
}

// undeliveredEvents are the events in the folder of a configuration, and the folder.
func undeliveredEvents(s *Settings) (entries []refused.Entry, dir string, err error) {
	c, err := s.LoadState()
	if err != nil {
		return nil, "", err
	}
	if _, err := os.Stat(c.State.Dir); err != nil {
		return nil, "", Refused(fmt.Errorf("%w; %s", err, StateDirHint(c.State.Dir)))
	}
	dir = app.UndeliveredDir(&c.State)
	entries, err = refused.List(dir)
	return entries, dir, Refused(err)
}

func newUndeliveredListCommand() *cobra.Command {
	output := "table"
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the events, oldest first",
		Long: `ls lists the events: the start of the ID that get and rm take, the sink that refused the
event, when, its type and object, its size, and why it was refused.

Exit codes: 0, also when there are none; 2 when the state directory cannot be read.`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "state.dir")
	OutputFlag(cmd, &output, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := CheckOutput(output, "table", "json"); err != nil {
			return err
		}
		entries, _, err := undeliveredEvents(s)
		if err != nil {
			return err
		}
		if output == "json" {
			for i := range entries {
				entries[i].Event = nil // get prints it
			}
			return Failed(terminal.PrintJSON(cmd.OutOrStdout(),
				append([]refused.Entry{}, entries...)))
		}
		return Failed(writeUndelivered(cmd.OutOrStdout(), entries))
	}
	return cmd
}

// shortID is enough to distinguish the events of a folder in practice. get and rm report it when
// not.
func shortID(e *refused.Entry) string { return e.ID[:min(8, len(e.ID))] }

func writeUndelivered(w io.Writer, entries []refused.Entry) error {
	if len(entries) == 0 {
		_, err := fmt.Fprintln(w, "No undelivered events.")
		return err
	}
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "ID\tSINK\tSINCE\tTYPE\tOBJECT\tSIZE\tREASON")
	for i := range entries {
		e := &entries[i]
		var about struct{ Type, Subject string }
		_ = json.Unmarshal(e.Event, &about) // empty columns where it cannot be read
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shortID(e), terminal.Plain(e.Sink),
			e.Kept.UTC().Format(time.RFC3339), terminal.Plain(about.Type),
			terminal.Plain(about.Subject),
			terminal.Bytes(e.Bytes),
			terminal.OneLine(cmp.Or(e.Problem, e.Reason)))
	}
	return t.Flush()
}

func newUndeliveredGetCommand() *cobra.Command {
	output := "event"
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Print an event",
		Long: `get prints one event as a structured CloudEvent (application/cloudevents+json), or with
--output json everything that is known of it: the sink, the reasons, the attempts, and the event.

ID is one that 'bridge undelivered ls' lists, or its first digits.

Exit codes: 0, 1 when there is no such event, 2 when the state directory cannot be read.`,
		Args: cobra.ExactArgs(1),
	}
	s := NewSettings(cmd, "state.dir")
	OutputFlag(cmd, &output, "event", "json")
	cmd.ValidArgsFunction = completeUndelivered(s)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := CheckOutput(output, "event", "json"); err != nil {
			return err
		}
		entries, _, err := undeliveredEvents(s)
		if err != nil {
			return err
		}
		e, err := refused.Find(entries, args[0])
		switch {
		case err != nil:
			return Failed(err)
		case output == "json":
			return Failed(terminal.PrintJSON(cmd.OutOrStdout(), e))
		case e.Problem != "":
			return Failed(fmt.Errorf("%s: %s", e.ID, e.Problem))
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", e.Event)
		return Failed(err)
	}
	return cmd
}

var errNamedOrAll = errors.New("name the events, or all of them with --all")

// choice is which events a command is about.
type choice struct {
	all  bool
	sink string
}

// flags adds the flags of a choice to a command whose arguments are IDs.
func (c *choice) flags(cmd *cobra.Command, verb string) {
	cmd.Flags().BoolVar(&c.all, "all", false, verb+" every event")
	cmd.Flags().StringVar(&c.sink, "sink", "", "with --all: only events of this sink")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case c.all == (len(args) > 0):
			return errNamedOrAll
		case c.sink != "" && !c.all:
			return errors.New("--sink needs --all")
		}
		return nil
	}
}

// of returns the chosen events.
func (c *choice) of(
	entries []refused.Entry, args []string,
) (chosen []refused.Entry, err error) {
	for i := range entries {
		if c.all && (c.sink == "" || entries[i].Sink == c.sink) {
			chosen = append(chosen, entries[i])
		}
	}
	for _, id := range args {
		e, err := refused.Find(entries, id)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, e)
	}
	return chosen, nil
}

func newUndeliveredRemoveCommand() *cobra.Command {
	var which choice
	cmd := &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"remove"},
		Short:   "Remove events",
		Long: `rm removes events: those with the IDs, or with --all every event, of one sink with --sink.
A removed event is lost, unless you have sent it. A running bridge uses the free room within
seconds.

Exit codes: 0, 1 when there is no such event (then none is removed), 2 when the state directory
cannot be read.`,
	}
	s := NewSettings(cmd, "state.dir")
	which.flags(cmd, "remove")
	cmd.ValidArgsFunction = completeUndelivered(s)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		entries, dir, err := undeliveredEvents(s)
		if err != nil {
			return err
		}
		chosen, err := which.of(entries, args)
		if err != nil {
			return Failed(err)
		}
		for i := range chosen {
			if err := refused.Remove(dir, chosen[i]); err != nil {
				return Failed(err)
			}
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "removed", terminal.Amount(len(chosen), "event"))
		return Failed(err)
	}
	return cmd
}

// completeUndelivered offers the IDs of the events, with what they are about.
func completeUndelivered(s *Settings) cobra.CompletionFunc {
	return func(
		*cobra.Command, []string, string,
	) (ids []cobra.Completion, _ cobra.ShellCompDirective) {
		entries, _, err := undeliveredEvents(s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range entries {
			e := &entries[i]
			ids = append(ids, cobra.CompletionWithDesc(shortID(e), terminal.OneLine(e.Reason)))
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
