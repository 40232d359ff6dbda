package table

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/sinks/source"
)

// memoryLimit makes the garbage collector work harder before 512 MB are in use.
const memoryLimit = 350 << 20

// NewCommand returns the command line of bridge-table.
func NewCommand() *cobra.Command {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	root := &cobra.Command{
		Use: "bridge-table", Short: "Every change of a stream as a row of Iceberg tables",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newRun(), newMaintain(), newSQL())
	return root
}

// placeFlags adds the flags that say where the tables are.
func placeFlags(cmd *cobra.Command) *Place {
	p := &Place{Namespace: "kubebridge"}
	f := cmd.Flags()
	f.StringVar(&p.To, "to", "table", "directory of the tables, which has its own catalog; with --catalog a warehouse")
	f.StringVar(&p.Catalog, "catalog", "", "address of a REST catalog")
	f.StringVar(&p.Namespace, "namespace", p.Namespace, "namespace of the tables")
	f.StringToStringVar(&p.Properties, "property", nil,
		"property of the catalog or storage, as s3.endpoint=…; may be repeated. Without keys, S3 takes those of "+
			"AWS_ACCESS_KEY_ID, a profile, or a role")
	return p
}

func newRun() *cobra.Command {
	o := Options{Source: source.Config{Client: "bridge-table"}}
	cmd := &cobra.Command{
		Use: "run", Short: "Write a stream into the tables", Args: cobra.NoArgs,
	}
	place := placeFlags(cmd)
	stream := ""
	f := cmd.Flags()
	f.StringVar(&o.Source.From, "from", "", "the stream: nats://host:4222/STREAM or kafka://host:9092/topics")
	f.StringVar(&stream, "stream", "", "the name of the stream or topics, where --from has none")
	f.DurationVar(&o.Interval, "interval", 5*time.Minute, "how long a row waits for its commit at most")
	f.BoolVar(&o.Once, "once", false, "end at the end of the stream")
	f.BoolVar(&o.Recreated, "recreated", false, "begin a stream that was recreated, and write a gap")
	_ = cmd.MarkFlagRequired("from")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Place, o.Log = *place, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
		if stream != "" {
			o.Source.From += "/" + stream
		}
		report, err := Run(cmd.Context(), o)
		if report != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%d messages, %d rows, %d repeats, %d snapshot rows, %d commits\n",
				report.Messages, report.Rows, report.Repeats, report.Snapshot, report.Commits)
		}
		return err
	}
	return cmd
}

func newMaintain() *cobra.Command {
	u := Upkeep{}
	cmd := &cobra.Command{
		Use: "maintain", Short: "Make the tables smaller: old rows, small files, old snapshots, lost files",
		Args: cobra.NoArgs,
	}
	place := placeFlags(cmd)
	f := cmd.Flags()
	f.DurationVar(&u.Keep, "keep", 0, "how long rows are kept; 0: forever. The last row of what lives stays")
	f.DurationVar(&u.Snapshots, "snapshots", 5*day, "how long Iceberg's snapshots are kept")
	f.DurationVar(&u.Orphans, "orphans", MinOrphans, "the age from which a file that no snapshot names is removed")
	f.StringSliceVar(&u.Only, "only", nil, "what is done of "+strings.Join(tasks, ", "))
	f.BoolVar(&u.DryRun, "dry-run", false, "only report what would be done")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		u.Place = *place
		u.Report = func(format string, args ...any) { fmt.Fprintf(cmd.OutOrStdout(), format, args...) }
		return Maintain(cmd.Context(), u)
	}
	return cmd
}

func newSQL() *cobra.Command {
	of, name, prefix := "", "", ""
	cmd := &cobra.Command{
		Use: "sql", Short: "Print the statements that make views of the table, for an engine", Args: cobra.NoArgs,
	}
	place := placeFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&of, "engine", "duckdb", "one of "+strings.Join(Engines, ", "))
	f.StringVar(&name, "table", "", "how the engine names the table changes; none: the file that the catalog of --to has now")
	f.StringVar(&prefix, "views", "", "what is before the names of the views, as lake.views. with its dot")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := Views(cmd.Context(), *place, of, name, prefix)
		fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	return cmd
}
