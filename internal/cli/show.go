package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	textdiff "github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

func newShowCommand() *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "show KIND/NAME",
		Short: "Print an object as it was at a time",
		Long: `show prints an object as it was at a time, or in its last version. Which version that is,
when it began and who made it goes to standard error.

The answer distinguishes an object that did not exist then from one of which the history does not
know that time, and from one that it has never seen.

` + timeHelp + `

Exit codes: 0; 1 when there was no such object, or it is not known; 2 when there is no history.`,
		Example: `  bridge show deploy/web -n shop --at 14:03
  bridge show node/worker-1 --at "2h ago" -o json
  bridge show pod/web-0 -n shop --at 48213 --dir /var/lib/history     at a resourceVersion`,
		Args: cobra.RangeArgs(1, 2),
	}
	o := historyFlags(cmd, "yaml", "json")
	cmd.Flags().StringVar(&at, "at", "",
		"time or resourceVersion; none: the last version, also of an object that is gone")
	cmd.ValidArgsFunction = o.completeObjects
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := CheckOutput(o.output, "yaml", "json"); err != nil {
			return err
		}
		p, err := ask.ParsePoint("--at", at)
		if err != nil {
			return err
		}
		db, q, object, err := o.openObject(cmd, args, p)
		if err != nil {
			return err
		}
		defer db.Close()
		v, err := showVersion(cmd, q, object, p)
		if err != nil {
			return err
		}
		return Failed(printObject(cmd.OutOrStdout(), v, o.output))
	}
	return cmd
}

// showVersion returns the version at a point, the last one for the zero point. It prints which
// version that is, and whether it may be another.
func showVersion(
	cmd *cobra.Command, q *ask.Question, object *query.Object, p query.Point,
) (*query.Version, error) {
	v, holes, err := q.Existing(object, p)
	if err != nil {
		return nil, failedQuestion(err)
	}
	printHoles(cmd, holes)
	if err := warnEnd(cmd, q, []*record.Unit{object.Unit}, p.At); err != nil {
		return nil, err
	}
	asOf := ""
	if !p.IsZero() {
		asOf = " at " + p.String()
	}
	made := ""
	if v.Event.Manager != "" {
		made = " by " + who(v)
	}
	if v.LateChange != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: uncertain: %s was %s: it may have been that already%s\n",
			terminal.Plain(object.String()), terminal.Plain(v.LateChange.String()), asOf)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s%s: resourceVersion %s, %s at %s%s\n",
		terminal.Plain(object.String()), asOf,
		terminal.Plain(v.Event.ResourceVersion), operation(v), query.ShowTime(v.Time),
		terminal.Plain(made))
	form := v.Form()
	if form == record.FormNone {
		return nil, Failed(fmt.Errorf("%s: no body is known: %s", object, notKnown(form)))
	}
	if form != record.FormObject {
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: this is not the whole object: %s\n", notKnown(form))
	}
	return v, nil
}

func printObject(w io.Writer, v *query.Version, output string) error {
	if !json.Valid(v.Event.Data) {
		_, err := fmt.Fprintf(w, "%s\n", terminal.Plain(string(v.Event.Data)))
		return err
	}
	if output == "json" {
		return terminal.PrintIndented(w, v.Event.Data)
	}
	return terminal.PrintYAML(w, json.RawMessage(v.Event.Data))
}

func newDiffCommand() *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:   "diff KIND/NAME",
		Short: "Compare an object at two times",
		Long: `diff prints how an object differs between two times, as a unified diff of its YAML, or as
JSON Patch (RFC 6902). Without --to it is the last version; without --from the one before that of
--to.

` + timeHelp + `

Exit codes: 0, whether or not there is a difference; 1 when there was no such object at one of the
times, or it is not known; 2 when there is no history.`,
		Example: `  bridge diff deploy/web -n shop                              what the last change changed
  bridge diff deploy/web -n shop --from 13:00 --to 14:03
  bridge diff deploy/web -n shop --from "1d ago" -o patch`,
		Args: cobra.RangeArgs(1, 2),
	}
	o := historyFlags(cmd, "diff", "patch")
	cmd.Flags().StringVar(&from, "from", "",
		"time or resourceVersion of the older version; none: the one before --to")
	cmd.Flags().StringVar(&to, "to", "",
		"time or resourceVersion of the newer version; none: the last one")
	cmd.ValidArgsFunction = o.completeObjects
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		older, err := ask.ParsePoint("--from", from)
		newer, toErr := ask.ParsePoint("--to", to)
		if err := errors.Join(CheckOutput(o.output, "diff", "patch"), err, toErr); err != nil {
			return err
		}
		db, q, object, err := o.openObject(cmd, args, newer)
		if err != nil {
			return err
		}
		defer db.Close()
		b, err := showVersion(cmd, q, object, newer)
		if err != nil {
			return err
		}
		var a *query.Version
		if older.IsZero() {
			a, err = q.Previous(object, b)
			err = failedQuestion(err)
		} else {
			a, err = showVersion(cmd, q, object, older)
		}
		if err != nil {
			return err
		}
		return Failed(printDiff(cmd.OutOrStdout(), a, b, o.output, wantsColour(cmd)))
	}
	return cmd
}

func printDiff(w io.Writer, a, b *query.Version, output string, colour bool) error {
	if err := ask.CheckComparable(a, b); err != nil {
		return err
	}
	if output == "patch" {
		return terminal.PrintIndented(w, diff.Diff(a.Event.Data, b.Event.Data))
	}
	var older, newer strings.Builder
	if err := errors.Join(printObject(&older, a, "yaml"), printObject(&newer, b, "yaml")); err != nil {
		return err
	}
	title := func(v *query.Version) string {
		return fmt.Sprintf("%s\t%s (resourceVersion %s)", terminal.OneLine(v.Event.PartitionKey),
			query.ShowTime(v.Time), terminal.OneLine(v.Event.ResourceVersion))
	}
	return writeUnified(w, title(a), older.String(), title(b), newer.String(), colour)
}

var lineColours = map[byte]string{'-': "\x1b[31m", '+': "\x1b[32m", '@': "\x1b[36m"}

// writeUnified writes a unified diff of two texts whose titles are lines; nothing but a remark when
// the texts are equal.
func writeUnified(w io.Writer, titleA, a, titleB, b string, colour bool) error {
	text := textdiff.Diff(titleA, []byte(a), titleB, []byte(b))
	_, hunks, differs := strings.Cut(string(text), "\n") // behind the line of the command diff
	if !differs {
		_, err := fmt.Fprintln(w, "no difference")
		return err
	}
	out := bufio.NewWriter(w)
	for line := range strings.Lines(hunks) {
		start := lineColours[line[0]]
		line = terminal.Plain(strings.TrimSuffix(line, "\n"))
		if colour && start != "" {
			line = start + line + "\x1b[0m"
		}
		fmt.Fprintln(out, line)
	}
	return out.Flush()
}
