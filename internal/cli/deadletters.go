package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// refusedCommands are the commands of this package.
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

// eachBatch calls do with the positions of all dead letters, or of those that the arguments name,
// so many as one command names.
func (d *deadLetters) eachBatch(
	ctx context.Context, letters *streams.DeadLetters, from source.Position, args []string,
	do func(positions []string) error,
) error {
	var batch []string
	missing := slices.Clone(args)
	for l, err := range letters.Each(ctx, from, nil) {
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
(stream/sequence, or topic/partition/offset), since when it is there, the type and object of the
event, its size, and why it was refused. What has no payload any more can't be sent again. With
--output json each dead letter is a line.

Exit codes: 0, also when there are none; 2 when the sink has no dead letters, or they can't be read.`,
		Example: `  bridge deadletters ls --sink lake --limit 20
  bridge deadletters ls --sink lake -o json`,
		Args: cobra.NoArgs,
	}
	d := newDeadLetters(cmd, NewSettings(cmd))
	d.fromFlag(cmd)
	OutputFlag(cmd, &output, "table", "json")
	cmd.Flags().IntVar(&limit, "limit", 0, "how many are listed; 0: all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := CheckOutput(output, "table", "json"); err != nil {
			return err
		}
		letters, from, err := d.open()
		if err != nil {
			return err
		}
		list := &letterList{out: cmd.OutOrStdout(), json: output == "json"}
		for l, err := range letters.Each(cmd.Context(), from, nil) {
			if err != nil {
				return errors.Join(list.flush(), Refused(err))
			}
			if err := list.add(l); err != nil {
				return Failed(err)
			}
			if list.count == limit {
				break
			}
		}
		if list.count == 0 && !list.json {
			fmt.Fprintln(list.out, "No dead letters.")
		}
		return Failed(list.flush())
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

func (p *letterList) add(l *streams.DeadLetter) error {
	const rows = 100 // that are aligned together
	if p.count++; p.json {
		line, err := terminal.JSONLine(l)
		if err == nil {
			_, err = p.out.Write(line)
		}
		return err
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
		for l, err := range letters.Each(cmd.Context(), nil, nil) {
			if err != nil {
				return Refused(err)
			}
			if l.Is(args[0]) {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", l.AppendEvent(nil))
				return Failed(err)
			}
		}
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
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "removed", terminal.Amount(removed, "dead letter"))
		return Failed(err)
	}
	return cmd
}
