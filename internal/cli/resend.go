package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// resendClient sends refused events through a running bridge.
type resendClient struct {
	client *Client
	what   string // "undelivered", or "deadletters"
	// settled is called with the answers; nil for none.
	settled func(ctx context.Context, answer *admin.Resent)
	errs    io.Writer
	bar     *terminal.Bar // nil without a terminal
	total   int           // 0 where it is not known
	// What became of the events so far.
	sent, kept int
}

func newResendClient(cmd *cobra.Command, c *Client, what string) *resendClient {
	errs := cmd.ErrOrStderr()
	return &resendClient{client: c, what: what, errs: errs, bar: terminal.NewBar(errs, "events")}
}

// keptError says that some were refused again; nil where none were.
func (s *resendClient) keptError(where string) error {
	if s.kept == 0 {
		return nil
	}
	return Failed(fmt.Errorf("%s refused, and %s", terminal.Amount(s.kept, "event"), where))
}

// sendAll sends the events of one sink after those of another.
func (s *resendClient) sendAll(ctx context.Context, events []refused.Entry) error {
	var sinks []string
	ids := map[string][]string{}
	for i := range events {
		sink := events[i].Sink
		if ids[sink] == nil {
			sinks = append(sinks, sink)
		}
		ids[sink] = append(ids[sink], events[i].ID)
	}
	var errs []error
	for _, sink := range sinks {
		errs = append(errs, s.sendTo(ctx, sink, ids[sink]))
	}
	return errors.Join(errs...)
}

// batchOfIDs is how many events one command names: 64 KiB hold positions in the longest topic.
const batchOfIDs = 200

// sendTo sends events of a sink, in their order. It ends at the first command that does not get an
// answer for all that it tried: later events must not pass those.
func (s *resendClient) sendTo(ctx context.Context, sink string, ids []string) error {
	for len(ids) > 0 {
		batch := ids[:min(len(ids), batchOfIDs)]
		answer, err := s.send(ctx, sink, batch)
		if err != nil {
			return err
		}
		for _, e := range answer.Kept {
			s.bar.Clear()
			fmt.Fprintf(s.errs, "%s: %s\n", terminal.Plain(e.ID), terminal.OneLine(e.Reason))
		}
		if s.settled != nil {
			s.settled(ctx, &answer)
		}
		s.sent += len(answer.Done)
		s.kept += len(answer.Kept)
		before := len(ids)
		ids = slices.DeleteFunc(ids, func(id string) bool {
			return slices.Contains(answer.Done, id) ||
				slices.ContainsFunc(answer.Kept, func(e admin.KeptEvent) bool { return e.ID == id })
		})
		if s.bar != nil {
			done := s.sent + s.kept
			s.bar.Show(done, source.Progress{Read: uint64(done), Total: uint64(s.total)})
		}
		if answer.Waiting != "" || len(ids) == before {
			return Failed(fmt.Errorf("sink %s: %s; %s not sent", sink,
				terminal.OneLine(answer.Waiting),
				terminal.Amount(len(ids), "event")))
		}
	}
	return nil
}

func (s *resendClient) send(
	ctx context.Context, sink string, ids []string,
) (answer admin.Resent, err error) {
	err = s.client.Send(ctx, "sinks/"+url.PathEscape(sink)+"/"+s.what,
		map[string]any{"ids": ids}, &answer)
	return answer, err
}

func newDeadLettersSendCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send POSITION|ID...",
		Short: "Make a running bridge send dead letters again",
		Long: `send makes the running bridge publish dead letters of a sink to where they should have
gone: those with the positions or ids, or with --all every one. Fix what refused them first.

The bridge reads them from the broker itself. It sends them in the order in which they are stored,
with their ids and bytes, so a consumer sees a repeat as one event. One that is refused again stays
a dead letter, with its reason printed. So does what has no answer within a minute: run the command
again. What has no payload can't be sent: use 'bridge snapshot INFORMER --sink NAME'. Nor can what
is not signed with the bridge's redaction key: without redaction.keyFile, that of its state.dir.

NATS: what was acknowledged is removed from the dead letters, where the user may publish on
$JS.API.STREAM.MSG.DELETE.<stream>. Kafka removes no single records, so there, and without that
right, the dead letters stay: the command prints with which --from to continue behind them.

An event is redacted as it was when it was refused: a rule that is newer does not change it. Remove
such an event, and publish the present state.

An event that is sent late comes behind newer events of its object. Consumers that order by
'sequence' are right; 'bridge verify' reports it as disorder. A sink that keeps only the newest
state of each object is refused: use 'bridge snapshot INFORMER --sink NAME'.` + clientHelp,
		Example: `  bridge deadletters send K8S/42 --sink lake
  bridge deadletters send --all --sink lake
  bridge deadletters send --all --sink lake --from dead/0/17`,
	}
	c := newClient(cmd)
	d := newDeadLetters(cmd, c.Settings)
	d.fromFlag(cmd)
	d.allFlag(cmd, "send")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		letters, from, err := d.open()
		if err != nil {
			return err
		}
		s := newResendClient(cmd, c, "deadletters")
		sent := &sentLetters{letters: letters, stay: letters.CanRemove(), next: map[string]uint64{}}
		s.settled = sent.record
		err = d.eachBatch(cmd.Context(), letters, from, args, func(positions []string) error {
			return s.sendTo(cmd.Context(), letters.Sink, positions)
		})
		s.bar.Clear()
		d.warn(cmd)
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

func newUndeliveredSendCommand() *cobra.Command {
	var which eventChoice
	cmd := &cobra.Command{
		Use:   "send ID...",
		Short: "Make a running bridge send events again",
		Long: `send makes the running bridge publish events to the sink that refused them: those with the IDs, or with
--all every event, of one sink with --sink. Fix what refused them first.

Events of one object are sent in their order. Ids and bytes are those of the first attempt, so a
consumer sees a repeat as one event. The bridge removes an event when the sink, or its dead letters,
have acknowledged it. An event that is refused again stays, with its reason printed. What has no
answer within a minute stays too: run the command again.

An event is redacted as it was when it was refused: a rule that is newer does not change it. Remove
such an event, and publish the present state.

An event that is sent late comes behind newer events of its object. Consumers that order by
'sequence' are right; 'bridge verify' reports it as disorder. A sink that keeps only the newest
state of each object is refused: use 'bridge snapshot INFORMER --sink NAME'.` + clientHelp,
		Example: `  bridge undelivered send 3f1c
  bridge undelivered send --all --sink lake`,
	}
	c := newClient(cmd)
	which.flags(cmd, "send")
	cmd.ValidArgsFunction = completeUndelivered(c.Settings)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		entries, _, err := undeliveredEvents(c.Settings)
		if err != nil {
			return err
		}
		chosen, err := which.choose(entries, args)
		if err != nil {
			return Failed(err)
		}
		refused.Order(chosen)
		s := newResendClient(cmd, c, "undelivered")
		s.total = len(chosen)
		err = errors.Join(s.sendAll(cmd.Context(), chosen), s.keptError("still undelivered"))
		s.bar.Clear()
		fmt.Fprintln(cmd.OutOrStdout(), "sent", terminal.Amount(s.sent, "event"))
		return err
	}
	return cmd
}
