package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

func newListCommand() *cobra.Command {
	output := "table"
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List what is remembered, by unit",
		Long: `ls lists the state directory: its path, the format version of what is in it, the uid of the
cluster's namespace kube-system, its size on disk; and for each unit

  watermark   the resourceVersion from which its watch resumes, and when it was saved; none: it will begin with a list
  objects     how many objects it knows
  tombstones  how many deleted ones it still remembers, until the watermark has passed them
  bodies      what the objects' JSON takes, as stored: compressed
  records     what their uids and versions take
  waiting     the changes that lie on disk until all sinks have them
  scope       its selectors when it last ran

It reads everything once, a few seconds for a million objects.

Exit codes: 0, 1 when something can't be read, 2 when there is no state or a bridge runs with it.`,
		Example: `  bridge statedir ls
  bridge statedir ls --config bridge.yaml
  bridge statedir ls --output json | jq '.units[] | select(.watermark == null) | .name'`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "state.dir")
	OutputFlag(cmd, &output, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := CheckOutput(output, "table", "json"); err != nil {
			return err
		}
		state, err := openState(cmd, s)
		if err != nil {
			return err
		}
		defer state.inspector.Close()
		report, problems := listState(state.inspector)
		if output == "json" {
			err = terminal.PrintJSON(cmd.OutOrStdout(), report)
		} else {
			err = report.writeTable(cmd.OutOrStdout())
		}
		return Failed(errors.Join(err, problems))
	}
	return cmd
}

// stateReport is the output of ls as JSON.
type stateReport struct {
	Directory string       `json:"directory"`
	Format    string       `json:"format"`
	Cluster   string       `json:"cluster"` // uid of kube-system
	DiskBytes int64        `json:"diskBytes"`
	Units     []unitReport `json:"units"`
}

type unitReport struct {
	Name         string     `json:"name"`
	Watermark    *watermark `json:"watermark"` // null: begins with a list
	Objects      int        `json:"objects"`
	Tombstones   int        `json:"tombstones"`
	BodyBytes    int64      `json:"bodyBytes"`
	RecordBytes  int64      `json:"recordBytes"`
	Waiting      int        `json:"waiting"`
	WaitingBytes int64      `json:"waitingBytes"`
	Scope        string     `json:"scope"`
	Problem      string     `json:"problem,omitempty"`
}

type watermark struct {
	Version resource.Version `json:"version"`
	Saved   time.Time        `json:"saved"`
}

// listState reads everything. What can't be read is left out of the report, and named in the error.
func listState(in *store.Inspector) (stateReport, error) {
	summary, summaryErr := in.Summary()
	units, unitsErr := in.Units()
	report := stateReport{
		Directory: summary.Dir, Format: summary.Format, Cluster: summary.Cluster,
		DiskBytes: summary.DiskBytes, Units: []unitReport{},
	}
	errs := []error{summaryErr, unitsErr}
	for _, u := range units {
		r, err := reportUnit(u)
		report.Units = append(report.Units, r)
		errs = append(errs, err)
	}
	return report, errors.Join(errs...)
}

func reportUnit(u store.Unit) (unitReport, error) {
	position, positionErr := u.Position()
	usage, usageErr := u.Usage()
	r := unitReport{
		Name: u.Name, Objects: usage.Objects, Tombstones: usage.Tombstones,
		BodyBytes: usage.BodyBytes, RecordBytes: usage.RecordBytes, Waiting: usage.Waiting,
		WaitingBytes: usage.WaitingBytes, Scope: u.Scope,
	}
	if position.Version != "" {
		r.Watermark = &watermark{position.Version, position.Time.UTC()}
	}
	err := unitProblems(u, usage, positionErr, usageErr)
	if err != nil {
		r.Problem = err.Error()
	}
	return r, err
}

func (r stateReport) writeTable(w io.Writer) error {
	t := terminal.NewTable(w)
	fmt.Fprintf(t, "directory\t%s\nformat\t%s\ncluster\t%s\non disk\t%s\n\n", r.Directory, r.Format,
		cmp.Or(r.Cluster, "unknown"), terminal.Bytes(r.DiskBytes))
	if err := t.Flush(); err != nil { // the columns of what follows are others
		return err
	}
	if len(r.Units) == 0 {
		_, err := fmt.Fprintln(w, "No informer has any state.")
		return err
	}
	fmt.Fprintln(t, "UNIT\tWATERMARK\tSAVED\tOBJECTS\tTOMBSTONES\tBODIES\tRECORDS\tWAITING\tSCOPE")
	for _, u := range r.Units {
		version, saved := "none", "-"
		if u.Watermark != nil {
			version, saved = string(u.Watermark.Version), u.Watermark.Saved.Format(time.RFC3339)
		}
		waiting := "0"
		if u.Waiting > 0 {
			waiting = fmt.Sprintf("%d (%s)", u.Waiting, terminal.Bytes(u.WaitingBytes))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n",
			u.Name, version, saved, u.Objects, u.Tombstones, terminal.Bytes(u.BodyBytes),
			terminal.Bytes(u.RecordBytes), waiting, u.Scope)
	}
	return t.Flush()
}
