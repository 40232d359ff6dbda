package cli

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
)

func newCoverageCommand() *cobra.Command {
	var since string
	var kinds []string
	cmd := &cobra.Command{
		Use:   "coverage [KIND,...]",
		Short: "Show what was watched without a break, and the gaps with their reasons",
		Long: `coverage lists, for each resource, the intervals of resourceVersions that were read without a
break, and the gaps between them with their reasons. Every version of an interval is in the history;
an independent reader of etcd can check that.

A bridge that stops and continues its watch where it had stopped leaves no gap: it has read
everything, but late. UNWATCHED is the longest time in which nobody watched; when a change was made
in that time is known by its bounds only, and answers about it say so.

Gaps are: expired (the API server had forgotten versions), rewound (etcd was restored), interrupted,
takeover, unreadable, forgotten (the bridge's state was lost), dropped (a sink was too slow),
quarantined (one version could not be parsed), removed (the stream had removed messages before they
were read), retention; unknown where the stream does not say what it is complete up to. An interval
ends where the stream said so last: see progress at the sink.

` + timeHelp + `

Exit codes: 0; 1 when the history can't be read; 2 when there is none.`,
		Example: `  bridge coverage
  bridge coverage pods,deploy -n shop --since 1d
  bridge coverage -o json | jq 'select(.gap)'`,
		Args: cobra.MaximumNArgs(1),
	}
	o := historyFlags(cmd, "table", "json")
	o.namespace, cmd.Flags().Lookup("namespace").DefValue = "*", ""
	cmd.Flags().Lookup("namespace").Usage = "namespace, where informers read only some; none: all"
	cmd.Flags().StringVar(&since, "since", "", "leave out what had ended by this time")
	cmd.ValidArgsFunction = o.completeKinds
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, argErr := kindArgs(args, kinds)
		p, err := ask.ParsePoint("--since", since)
		if p.Version > 0 {
			err = errors.New("--since of a coverage is a time")
		}
		if err := errors.Join(CheckOutput(o.output, "table", "json"), argErr, err); err != nil {
			return err
		}
		db, q, err := o.openQuestion()
		if err != nil {
			return err
		}
		defer db.Close()
		intervals, err := q.Coverage(list, p.At)
		if err != nil {
			return failedQuestion(err)
		}
		return Failed(printCoverage(cmd, intervals, o.output))
	}
	return cmd
}

func printCoverage(cmd *cobra.Command, list []query.Interval, output string) error {
	w := cmd.OutOrStdout()
	if output == "json" {
		for _, i := range list {
			line, err := terminal.JSONLine(i)
			if err == nil {
				_, err = w.Write(line)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "nothing was watched")
		return err
	}
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "RESOURCE\tINFORMER\tSTATE\tFROM\tTO\tSINCE\tUNTIL\tUNWATCHED")
	for _, i := range list {
		state, unwatched := "complete", "-"
		if i.Gap != "" {
			state = "gap: " + i.Gap
		}
		if longest := i.LongestUnwatched(); longest > 0 {
			unwatched = longest.Round(time.Second).String()
		}
		resource := i.Resource
		if of := cmp.Or(i.Object, i.Namespace); of != "" {
			resource += "/" + of
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", terminal.OneLine(resource),
			terminal.OneLine(i.Informer), terminal.OneLine(state), terminal.OneLine(cmp.Or(i.From, "-")),
			terminal.OneLine(cmp.Or(i.To, "-")), shownTime(i.Since), shownTime(i.Until), unwatched)
	}
	return t.Flush()
}

func shownTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return query.ShowTime(t)
}
