package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/publisher/refused"
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
state of each object is refused: use 'bridge snapshot INFORMER --sink NAME'.` + Help,
		Example: `  bridge undelivered send 3f1c
  bridge undelivered send --all --sink lake`,
	}
	c := New(cmd)
	which.flags(cmd, "send")
	cmd.ValidArgsFunction = completeUndelivered(c.Settings)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		entries, _, err := undeliveredEvents(c.Settings)
		if err != nil {
			return err
		}
		chosen, err := which.of(entries, args)
		if err != nil {
			return Failed(err)
		}
		refused.Order(chosen)
		s := newResending(cmd, c, "undelivered")
		s.total = len(chosen)
		err = errors.Join(s.sendAll(cmd.Context(), chosen), s.keptError("still undelivered"))
		s.bar.Clear()
		fmt.Fprintln(cmd.OutOrStdout(), "sent", terminal.Amount(s.sent, "event"))
		return err
	}
	return cmd
}
