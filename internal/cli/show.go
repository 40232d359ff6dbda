package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
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
		p, err := parseAt("--at", at)
		if err != nil {
			return err
		}
		db, object, err := o.openObject(cmd, args)
		if err != nil {
			return err
		}
		defer db.Close()
		v, err := o.version(cmd, db.Questions, object, p)
		if err != nil {
			return err
		}
		return Failed(printObject(cmd.OutOrStdout(), v, o.output))
	}
	return cmd
}

// parseAt reads a point of a flag; "" is the zero point.
func parseAt(flag, text string) (p query.Point, err error) {
	if text == "" {
		return p, nil
	}
	if p, err = query.ParsePoint(text, time.Now()); err != nil {
		return p, fmt.Errorf("%s: %w", flag, err)
	}
	return p, nil
}

// version is the version at a point, the last one for the zero point. It says which that is, and
// whether it may be another.
func (o *historyOptions) version(
	cmd *cobra.Command, h *query.Questions, object *query.Object, p query.Point,
) (v *query.Version, err error) {
	if p.IsZero() {
		v, err = h.Objects.At(object, query.Point{})
	} else {
		v, err = h.Objects.Existing(object, p)
	}
	if err != nil {
		return nil, Failed(err)
	}
	if !p.IsZero() {
		holes, err := h.Coverage.Uncertain(object, v, p)
		if err = errors.Join(Failed(err), o.warn(cmd, h, object, holes, p.At)); err != nil {
			return nil, err
		}
	}
	asOf := ""
	if !p.IsZero() {
		asOf = " at " + p.String()
	}
	made := ""
	if v.Event.Manager != "" {
		made = " by " + who(v)
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
		older, err := parseAt("--from", from)
		newer, toErr := parseAt("--to", to)
		if err := errors.Join(CheckOutput(o.output, "diff", "patch"), err, toErr); err != nil {
			return err
		}
		db, object, err := o.openObject(cmd, args)
		if err != nil {
			return err
		}
		defer db.Close()
		b, err := o.version(cmd, db.Questions, object, newer)
		if err != nil {
			return err
		}
		var a *query.Version
		if older.IsZero() {
			a, err = db.Questions.Objects.VersionBefore(b)
			if err == nil && a == nil {
				err = fmt.Errorf("%s has no version before resourceVersion %s", object,
					b.Event.ResourceVersion)
			}
			err = Failed(err)
		} else {
			a, err = o.version(cmd, db.Questions, object, older)
		}
		if err != nil {
			return err
		}
		return Failed(printDiff(cmd.OutOrStdout(), a, b, o.output, wantsColour(cmd)))
	}
	return cmd
}

func printDiff(w io.Writer, a, b *query.Version, output string, colour bool) error {
	if a.Form() != b.Form() {
		return fmt.Errorf("the two versions can't be compared: of one the history has the %s, "+
			"of the other the %s", a.Form(), b.Form())
	}
	if output == "patch" {
		return terminal.PrintIndented(w, diff.Diff(a.Event.Data, b.Event.Data))
	}
	var older, newer strings.Builder
	if err := errors.Join(printObject(&older, a, "yaml"), printObject(&newer, b, "yaml")); err != nil {
		return err
	}
	title := func(v *query.Version) string {
		return fmt.Sprintf("%s\t%s (resourceVersion %s)", v.Event.PartitionKey, query.ShowTime(v.Time),
			v.Event.ResourceVersion)
	}
	return writeUnified(w, title(a), title(b), lines(older.String()), lines(newer.String()), colour)
}

func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }
