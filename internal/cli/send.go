package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/cli/terminal"
)

func newDeadLettersSendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send POSITION|ID...",
		Short: "Make a running bridge send dead letters again",
		Long: `send makes the running bridge publish dead letters of a sink to where they should have
gone: those with the positions or ids, or with --all every one. Fix what refused them first.

The bridge reads them from the broker itself. It sends them in the order in which they are stored,
with their ids and bytes, so a consumer sees a repeat as one event. One that is refused again stays
a dead letter, with its reason printed. So does what has no answer within a minute: run the command
again. What has no payload can't be sent: use 'bridge snapshot INFORMER --sink NAME'.

NATS: what was acknowledged is removed from the dead letters, where the user may publish on
$JS.API.STREAM.MSG.DELETE.<stream>. Kafka removes no single records, so there, and without that
right, the dead letters stay: the command prints with which --from to continue behind them.

An event is redacted as it was when it was refused: a rule that is newer does not change it. Remove
such an event, and publish the present state.

An event that is sent late comes behind newer events of its object. Consumers that order by
'sequence' are right; 'bridge verify' reports it as disorder. A sink that keeps only the newest
state of each object is refused: use 'bridge snapshot INFORMER --sink NAME'.` + Help,
		Example: `  bridge deadletters send K8S/42 --sink lake
  bridge deadletters send --all --sink lake
  bridge deadletters send --all --sink lake --from dead/0/17`,
	}
	c := New(cmd)
	d := newDeadLetters(cmd, c.Settings)
	d.fromFlag(cmd)
	d.allFlag(cmd, "send")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		letters, from, err := d.open()
		if err != nil {
			return err
		}
		s := newResending(cmd, c, "deadletters")
		sent := &sentLetters{letters: letters, stay: letters.CanRemove(), next: map[string]uint64{}}
		s.settled = sent.record
		err = d.eachBatch(cmd.Context(), letters, from, args, func(positions []string) error {
			return s.sendTo(cmd.Context(), letters.Sink, positions)
		})
		s.bar.Clear()
		fmt.Fprintln(cmd.OutOrStdout(), "sent", terminal.Amount(s.sent, "event"))
		if sent.stay != nil && s.sent > 0 {
			sent.print(cmd.OutOrStdout(), d.all)
		}
		return errors.Join(err, s.keptError("still in the dead letters"))
	}
	return cmd
}

// sentLetters removes what was sent where that is possible, and remembers where to continue where
// it is not.
type sentLetters struct {
	letters *streams.DeadLetters
	stay    error             // why what was sent stays in the dead letters
	next    map[string]uint64 // behind the last one that was sent, by lane
}

// record is for resending.settled.
func (s *sentLetters) record(ctx context.Context, answer *admin.Resent) {
	for _, position := range answer.Done {
		if p, err := streams.ParsePosition(position); err == nil {
			s.next[p.Lane] = max(s.next[p.Lane], p.Offset+1)
		}
	}
	if s.stay == nil {
		s.stay = s.letters.Remove(ctx, answer.Done)
	}
}

// print says what stays, and where to continue.
func (s *sentLetters) print(w io.Writer, all bool) {
	fmt.Fprintln(w, "they stay in the dead letters:", terminal.OneLine(s.stay.Error()))
	if !all {
		return
	}
	fmt.Fprint(w, "to continue behind them:")
	for _, lane := range slices.Sorted(maps.Keys(s.next)) {
		fmt.Fprintf(w, " --from %s/%d", terminal.Plain(lane), s.next[lane])
	}
	fmt.Fprintln(w)
}
