package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/admin"
	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/source"
	"github.com/kubebridge/bridge/internal/undelivered"
)

func newUndeliveredSendCommand() *cobra.Command {
	var which choice
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
state of each object is refused: use 'bridge snapshot INFORMER --sink NAME'.` + howToReach,
		Example: `  bridge undelivered send 3f1c
  bridge undelivered send --all --sink lake`,
	}
	c := newClient(cmd)
	which.flags(cmd, "send")
	cmd.ValidArgsFunction = completeUndelivered(c.settings)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		entries, _, err := undeliveredEvents(c.settings)
		if err != nil {
			return err
		}
		chosen, err := which.of(entries, args)
		if err != nil {
			return failed(err)
		}
		undelivered.Order(chosen)
		s := newResending(cmd, c, "undelivered")
		s.total = len(chosen)
		err = errors.Join(s.sendAll(cmd.Context(), chosen), s.keptError("still undelivered"))
		s.bar.clear()
		fmt.Fprintln(cmd.OutOrStdout(), "sent", app.Plural(s.sent, "event"))
		return err
	}
	return cmd
}

// resending sends refused events through a running bridge.
type resending struct {
	client *client
	what   string // "undelivered", or "deadletters"
	// settled is called with the answers; nil for none.
	settled func(ctx context.Context, answer *admin.Resent)
	errs    io.Writer
	bar     *progressBar // nil without a terminal
	total   int          // 0 where it is not known
	// What became of the events so far.
	sent, kept int
}

func newResending(cmd *cobra.Command, c *client, what string) *resending {
	s := &resending{client: c, what: what, errs: cmd.ErrOrStderr()}
	if isTerminal(s.errs) {
		s.bar = &progressBar{out: s.errs, of: "events", began: time.Now()}
	}
	return s
}

// keptError says that some were refused again; nil where none were.
func (s *resending) keptError(where string) error {
	if s.kept == 0 {
		return nil
	}
	return failed(fmt.Errorf("%s refused, and %s", app.Plural(s.kept, "event"), where))
}

// sendAll sends the events of one sink after those of another.
func (s *resending) sendAll(ctx context.Context, events []undelivered.Entry) error {
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
func (s *resending) sendTo(ctx context.Context, sink string, ids []string) error {
	for len(ids) > 0 {
		batch := ids[:min(len(ids), batchOfIDs)]
		answer, err := s.send(ctx, sink, batch)
		if err != nil {
			return err
		}
		for _, e := range answer.Kept {
			s.bar.clear()
			fmt.Fprintf(s.errs, "%s: %s\n", plain(e.ID), oneLine(e.Reason))
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
			s.bar.show(done, source.Progress{Read: uint64(done), Total: uint64(s.total)})
		}
		if answer.Waiting != "" || len(ids) == before {
			return failed(fmt.Errorf("sink %s: %s; %s not sent", sink, oneLine(answer.Waiting),
				app.Plural(len(ids), "event")))
		}
	}
	return nil
}

func (s *resending) send(
	ctx context.Context, sink string, ids []string,
) (answer admin.Resent, err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	err = s.client.send(ctx, "sinks/"+url.PathEscape(sink)+"/"+s.what,
		map[string]any{"ids": ids}, &answer)
	return answer, err
}
