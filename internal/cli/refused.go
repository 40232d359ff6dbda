package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

func refusedCommands() []*cobra.Command {
	return []*cobra.Command{newDeadLettersCommand(), newUndeliveredCommand()}
}

func newDeadLettersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "deadletters",
		Aliases: []string{"dlq"},
		Short:   "List, print, send and remove dead letters",
		Long: `deadletters shows the events that a broker refused permanently and that lie in the dead
letters of their sink: NATS (nats.deadLetterSubject) or Kafka (kafka.deadLetterTopic). It reads them
from the broker, with the address and the credentials of the sink in --config, also while no bridge
runs.

After you have fixed what refused them, 'bridge deadletters send' sends them again. What neither the
sink nor its dead letters took is in a folder: 'bridge undelivered'.`,
		Example: `  bridge deadletters ls --sink lake
  bridge deadletters get K8S/42 --sink lake > event.json
  bridge deadletters send --all --sink lake
  bridge deadletters rm K8S/42 --sink lake`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDeadLettersListCommand(), newDeadLettersGetCommand(),
		newDeadLettersSendCommand(), newDeadLettersRemoveCommand())
	return cmd
}

// deadLetters are the flags that say which dead letters a command is about.
type deadLetters struct {
	settings *Settings
	sink     string
	from     []string
	timeout  time.Duration
	all      bool
	// What was read and is no dead letter: how many messages, and the first.
	invalid      int
	firstInvalid error
}

// newDeadLetters adds the flags of all commands.
func newDeadLetters(cmd *cobra.Command, s *Settings) *deadLetters {
	d := &deadLetters{settings: s}
	cmd.Flags().StringVar(&d.sink, "sink", "", "sink whose dead letters these are; none: the only "+
		"one with a broker")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 30*time.Second, "how long to wait for a broker "+
		"that does not answer")
	s.CompleteSinks(cmd)
	return d
}

func (d *deadLetters) fromFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&d.from, "from", nil, "position to begin at, in its stream or "+
		"partition; may be repeated for others; none: the first")
}

func (d *deadLetters) allFlag(cmd *cobra.Command, verb string) {
	cmd.Flags().BoolVar(&d.all, "all", false, verb+" every dead letter of the sink")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if d.all == (len(args) > 0) {
			return errNamedOrAll
		}
		return nil
	}
}

// open says where they are, and where to begin.
func (d *deadLetters) open() (*streams.DeadLetters, source.Position, error) {
	c, err := d.settings.Load()
	if err != nil {
		return nil, nil, err
	}
	from := source.Position{}
	for _, text := range d.from {
		p, err := streams.ParsePosition(text)
		if err != nil {
			return nil, nil, Refused(fmt.Errorf("--from: %w", err))
		}
		from[p.Lane] = source.Lane{Next: p.Offset}
	}
	letters, err := streams.NewDeadLetters(streams.SourceOptions{
		Config: c, Client: "bridge deadletters", Sink: d.sink, Patience: d.timeout,
	})
	return letters, from, Refused(err)
}

// each reads the dead letters, and counts what is none.
func (d *deadLetters) each(
	ctx context.Context, letters *streams.DeadLetters, from source.Position,
) iter.Seq2[*streams.DeadLetter, error] {
	return func(yield func(*streams.DeadLetter, error) bool) {
		for l, err := range letters.Each(ctx, from, nil) {
			if err == nil && l.Invalid != nil {
				if d.invalid++; d.invalid == 1 {
					d.firstInvalid = fmt.Errorf("%s: %w", l.Position, l.Invalid)
				}
				continue
			}
			if !yield(l, err) {
				return
			}
		}
	}
}

// invalidError says what was read and is no dead letter; nil for nothing.
func (d *deadLetters) invalidError() error {
	switch d.invalid {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 message is no dead letter: %w", d.firstInvalid)
	}
	return fmt.Errorf("%s are no dead letters; the first: %w",
		terminal.Amount(d.invalid, "message"), d.firstInvalid)
}

// warn prints invalidError. It does not change the exit code.
func (d *deadLetters) warn(cmd *cobra.Command) {
	if err := d.invalidError(); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), terminal.OneLine(err.Error()))
	}
}

// eachBatch calls do with the positions of all dead letters, or of those that the arguments name,
// so many as one command names.
func (d *deadLetters) eachBatch(
	ctx context.Context, letters *streams.DeadLetters, from source.Position, args []string,
	do func(positions []string) error,
) error {
	var batch []string
	missing := slices.Clone(args)
	for l, err := range d.each(ctx, letters, from) {
		if err != nil {
			return Refused(err)
		}
		if d.all || slices.ContainsFunc(args, l.Is) {
			batch = append(batch, l.Position)
			missing = slices.DeleteFunc(missing, l.Is)
		}
		if d.all && len(batch) == batchOfIDs {
			if err := do(batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	if len(missing) > 0 {
		return noSuchLetter(missing[0])
	}
	for some := range slices.Chunk(batch, batchOfIDs) {
		if err := do(some); err != nil {
			return err
		}
	}
	return nil
}

func noSuchLetter(name string) error {
	return Failed(fmt.Errorf("there is no dead letter %s of this sink", name))
}

func newDeadLettersListCommand() *cobra.Command {
	output, limit := "table", 0
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the dead letters, as they are stored",
		Long: `ls lists the dead letters of a sink: the position that get, send and rm take
(stream/sequence, or topic/partition/offset), since when it is there, type and object of the event,
size, and why it was refused. What has no payload can't be sent. What is no CloudEvent is counted on
stderr. With --output json each letter is a line.

Exit codes: 0, also for none; 2 when the sink has no dead letters, or none can be read.`,
		Example: `  bridge deadletters ls --sink lake --limit 20
  bridge deadletters ls --sink lake -o json`,
		Args: cobra.NoArgs,
	}
	d := newDeadLetters(cmd, NewSettings(cmd))
	d.fromFlag(cmd)
	OutputFlag(cmd, &output, "table", "json")
	cmd.Flags().IntVar(&limit, "limit", 0, "how many are listed; 0: all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		letters, from, err := d.open()
		if err != nil {
			return err
		}
		list := &letterList{out: cmd.OutOrStdout(), json: output == "json"}
		for l, err := range d.each(cmd.Context(), letters, from) {
			if err != nil {
				return errors.Join(list.flush(), Refused(err))
			}
			if err := list.print(l); err != nil {
				return Failed(err)
			}
			if list.count == limit {
				break
			}
		}
		switch {
		case list.count == 0 && d.invalid > 0:
			return Refused(d.invalidError())
		case list.count == 0 && !list.json:
			fmt.Fprintln(list.out, "No dead letters.")
		}
		err = list.flush()
		d.warn(cmd)
		return Failed(err)
	}
	return cmd
}

// letterList prints dead letters as they come.
type letterList struct {
	out   io.Writer
	json  bool // a line for each
	count int
	table *tabwriter.Writer // of the rows that are not printed yet; nil for none
}

func (p *letterList) print(l *streams.DeadLetter) error {
	const rows = 100 // that are aligned together
	if p.count++; p.json {
		return terminal.PrintLine(p.out, l)
	}
	if p.table == nil {
		p.table = terminal.NewTable(p.out)
		fmt.Fprintln(p.table, "POSITION\tSINCE\tTYPE\tOBJECT\tSIZE\tREASON")
	}
	reason := terminal.OneLine(l.Reason)
	if l.Truncated {
		reason += " (it has no payload)"
	}
	fmt.Fprintf(p.table, "%s\t%s\t%s\t%s\t%s\t%s\n", terminal.Plain(l.Position),
		l.Stored.Format(time.RFC3339),
		terminal.Plain(l.Type), terminal.Plain(l.Subject), terminal.Bytes(l.Bytes), reason)
	if p.count%rows == 0 {
		return p.table.Flush()
	}
	return nil
}

func (p *letterList) flush() error {
	if p.table == nil {
		return nil
	}
	return p.table.Flush()
}

func newDeadLettersGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get POSITION|ID",
		Short: "Print a dead letter",
		Long: `get prints one dead letter as a structured CloudEvent (application/cloudevents+json): the
event, with deadletterreason, deadletterattempts, and where it should have gone. It is named by its
position, or by the id of the event.

Exit codes: 0, 1 when there is no such dead letter, 2 when the sink has none, or they can't be read.`,
		Args: cobra.ExactArgs(1),
	}
	d := newDeadLetters(cmd, NewSettings(cmd))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		letters, _, err := d.open()
		if err != nil {
			return err
		}
		for l, err := range d.each(cmd.Context(), letters, nil) {
			if err != nil {
				return Refused(err)
			}
			if l.Is(args[0]) {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", l.AppendEvent(nil))
				return Failed(err)
			}
		}
		d.warn(cmd)
		return noSuchLetter(args[0])
	}
	return cmd
}

func newDeadLettersRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm POSITION|ID...",
		Aliases: []string{"remove"},
		Short:   "Remove dead letters of NATS",
		Long: `rm removes dead letters from their stream: those with the positions or ids, or with --all
every one of the sink. A removed event is lost, unless you have sent it. It takes the right to
publish on $JS.API.STREAM.MSG.DELETE.<stream>, and a stream without deny_delete. Kafka removes no
single records.

Exit codes: 0, 1 when there is no such dead letter (then none is removed) or the server refuses, 2
when the sink has none, they can't be read, or they are Kafka's.`,
	}
	d := newDeadLetters(cmd, NewSettings(cmd))
	d.allFlag(cmd, "remove")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		letters, from, err := d.open()
		if err == nil {
			err = Refused(letters.CanRemove())
		}
		if err != nil {
			return err
		}
		removed := 0
		err = d.eachBatch(cmd.Context(), letters, from, args, func(positions []string) error {
			err := letters.Remove(cmd.Context(), positions)
			if err == nil {
				removed += len(positions)
			}
			return Failed(err)
		})
		d.warn(cmd)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "removed", terminal.Amount(removed, "dead letter"))
		return Failed(err)
	}
	return cmd
}

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

// undeliveredEvents returns the events in the folder of a configuration, and the folder.
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

// eventChoice is which events a command is about.
type eventChoice struct {
	all  bool
	sink string
}

// flags adds the flags of a choice to a command whose arguments are IDs.
func (c *eventChoice) flags(cmd *cobra.Command, verb string) {
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

// choose returns the chosen events.
func (c *eventChoice) choose(
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
	var which eventChoice
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
		chosen, err := which.choose(entries, args)
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
