package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// resending sends refused events through a running bridge.
type resending struct {
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

func newResending(cmd *cobra.Command, c *Client, what string) *resending {
	errs := cmd.ErrOrStderr()
	return &resending{client: c, what: what, errs: errs, bar: terminal.NewBar(errs, "events")}
}

// keptError says that some were refused again; nil where none were.
func (s *resending) keptError(where string) error {
	if s.kept == 0 {
		return nil
	}
	return Failed(fmt.Errorf("%s refused, and %s", terminal.Amount(s.kept, "event"), where))
}

// sendAll sends the events of one sink after those of another.
func (s *resending) sendAll(ctx context.Context, events []refused.Entry) error {
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

func (s *resending) send(
	ctx context.Context, sink string, ids []string,
) (answer admin.Resent, err error) {
	err = s.client.Send(ctx, "sinks/"+url.PathEscape(sink)+"/"+s.what,
		map[string]any{"ids": ids}, &answer)
	return answer, err
}
