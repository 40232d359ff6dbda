package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/history/query"
)

var verifyOutputs = []string{"table", "json", "yaml"}

func newVerifyCommand() *cobra.Command {
	o := streams.VerifyOptions{SourceOptions: streams.SourceOptions{Client: "bridge verify"}}
	var output, since string
	var h historyOptions
	var coverage bool
	cmd := &cobra.Command{
		Use:   "verify [KIND…]",
		Short: "Read a stream and check that nothing is missing, out of order or untrue",
		Long: `verify reads a stream from its first message to its end and checks it without the bridge's
word:

  removed        somebody has removed messages from the stream or topic
  unreadable     a batch of Kafka can't be read: its records are not known
  break          a version is missing: an event's 'previous' is not in the stream
  no-add         a delete of an object that was never added
  no-delete      another object has the name, and no event says that the first was deleted
  disorder       an event comes behind a newer one of its object
  backwards      the time of an event is minutes before that of an earlier one of its object
  changed        an id came again with other data
  contradiction  id, sequence, key or data of an event do not belong to its other attributes
  scattered      the events of one object are in several Kafka partitions

With --against-cluster it compares the final state with the API server: 'stale' (the cluster has a
newer version), 'absent' (the stream lacks an object), 'extra' (the cluster lacks it), 'ahead' (the
stream has a version that the cluster has not reached).

With --coverage it compares the stream with a history of the same informers, each with what the
other reports to have without a break ('bridge coverage'): 'missing' (the stream lacks a version
that the history has: also an object's last one, or all of them), 'unrecorded' (the history lacks
one that the stream has), 'undeclared' (one of them reports a gap, the other no break).

Repeats (the same id with the same data), gaps that the stream reports, and dead letters are listed
and are no faults. Where the configuration leaves versions out (filter, operations, latest and
others, as 'informer.synced' events say), the chain can't be checked; order, repeats and data are.

Kinds as kubectl names them, --namespace and --since narrow what is checked. The stream is read from
its start in any case. What was before --since is not missing.

It needs no state directory and only reads: it makes no durable consumer and joins no group. Memory
follows the number of objects. docs/verify.md has the rights that it needs, and what it can't see.

Exit codes: 0 when nothing is wrong, 1 when something is, 2 when the stream could not be read to its
end.`,
		Example: `  bridge verify                                             what 'bridge run' without a file has stored
  bridge verify --config bridge.yaml --sink audit           with that sink's address and credentials
  bridge verify --from nats://nats:4222/K8S --against-cluster
  bridge verify --coverage                                  beside the history that the bridge keeps
  bridge verify deployments pods -n shop --since 2h
  bridge verify --from kafka://kafka-0:9092,kafka-1:9092/k8s.prod.* -o json
  zcat events.json.gz | bridge verify --from -`,
	}
	s := NewSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context", "cluster", "state.dir")
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "", "namespace that is checked; none: all")
	cmd.Flags().StringVar(&since, "since", "", "check events since a time: 2h, 14:03, RFC 3339; none: all")
	cmd.Flags().StringVar(&o.From, "from", "",
		"stream to read: nats://host/STREAM, kafka://host/topic, a file of structured events, or "+
			"- ; * in a name stands for anything; none: that of the sink")
	cmd.Flags().StringVar(&o.Sink, "sink", "", "sink of the configuration whose address and "+
		"credentials are used; none: the only one")
	cmd.Flags().BoolVar(&o.AgainstCluster, "against-cluster", false, "compare the final state "+
		"with the API server")
	cmd.Flags().BoolVar(&coverage, "coverage", false, "compare with a history")
	cmd.Flags().StringVar(&h.dir, "dir", "", "with --coverage, directory of the history; none: that "+
		"of the bridge with this configuration")
	_ = cmd.MarkFlagDirname("dir")
	cmd.Flags().DurationVar(&o.Wait, "wait", 15*time.Second, "with --against-cluster, how long "+
		"an event that is missing may be in flight")
	cmd.Flags().DurationVar(&o.Patience, "timeout", 30*time.Second,
		"how long to wait for a broker that does not answer")
	OutputFlag(cmd, &output, verifyOutputs...)
	s.CompleteSinks(cmd)
	cmd.RunE = func(cmd *cobra.Command, kinds []string) error {
		o.Kinds = kinds
		if since != "" {
			p, err := query.ParsePoint(since, time.Now())
			switch {
			case err != nil:
				return fmt.Errorf("--since: %w", err)
			case p.Version > 0:
				return fmt.Errorf("--since %s: want a time", since)
			case o.AgainstCluster:
				return errors.New("--since and --against-cluster: what has not changed since is no " +
					"part of what is checked, give one of them")
			}
			o.Since = p.At
		}
		if o.Patience <= 0 || o.Wait < 0 {
			return errors.New("--timeout must be above 0, --wait not below")
		}
		var err error
		if o.Config, err = s.Load(); err != nil {
			return err
		}
		if !coverage {
			if h.dir != "" {
				return errors.New("--dir is of --coverage, which is not given")
			}
			return runVerify(cmd, o, output)
		}
		h.settings = s
		db, err := h.open()
		if err != nil {
			return err
		}
		defer db.Close()
		o.History = db.Questions
		return runVerify(cmd, o, output)
	}
	return cmd
}

func runVerify(cmd *cobra.Command, o streams.VerifyOptions, output string) error {
	log := NewLogger(config.Log{Level: "error", Format: "auto"}, cmd.ErrOrStderr())
	ctx, stop := UntilSignal(cmd.Context(), log, os.Exit)
	defer stop()
	o.Stdin = cmd.InOrStdin()
	bar := terminal.NewBar(cmd.ErrOrStderr(), "messages")
	if bar != nil {
		o.Progress = bar.Show
	}
	report, err := streams.Verify(ctx, o)
	bar.Clear()
	if report != nil {
		if printErr := printReport(cmd.OutOrStdout(), report, output); printErr != nil {
			return Refused(printErr)
		}
	}
	switch {
	case errors.Is(err, streams.ErrNoKind):
		return Refused(err)
	case err != nil:
		return Refused(fmt.Errorf("the stream could not be read to its end: %w", err))
	case !report.OK:
		return Failed(errors.New(summary(report)))
	}
	return nil
}

func printReport(w io.Writer, r *verify.Report, output string) error {
	switch output {
	case "json":
		return terminal.PrintJSON(w, r)
	case "yaml":
		return terminal.PrintYAML(w, r)
	}
	return printTable(w, r)
}

// maxShown bounds the faults, and what is reported as missing, of a table.
const maxShown = 20

func printTable(w io.Writer, r *verify.Report) error {
	fmt.Fprintf(w, "%s: %s, %s, %s (%s at the end), %s\n\n", terminal.Plain(r.Source),
		terminal.Amount(r.Messages, "message"), terminal.Amount(r.Events, "event"),
		terminal.Amount(r.Objects, "object"), terminal.Thousands(r.Alive),
		terminal.Amount(r.Repeats, "repeat"))
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "INFORMER\tRESOURCE\tOBJECTS\tAT THE END\tEVENTS\tCOMPLETE UP "+
		"TO\tNEWEST\tREPORTED\tFAULTS\tCHAIN")
	for i := range r.Resources {
		x := &r.Resources[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%s\n", terminal.OneLine(x.Informer),
			terminal.OneLine(x.Resource), x.Objects, x.Alive, x.Events,
			orDash(x.Complete), orDash(x.Newest), len(x.Reported), x.Faults, terminal.OneLine(x.Chain))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	printReported(w, r)
	printFound(w, r)
	if len(r.Other) > 0 {
		fmt.Fprintln(w, "\nMessages that are no events of a bridge:")
		for _, name := range sortedNames(r.Other) {
			fmt.Fprintf(w, "  %s  %s\n", terminal.Thousands(r.Other[name]), terminal.OneLine(name))
		}
	}
	if r.Cluster != nil {
		fmt.Fprintf(w, "\nCompared with the API server: %s, %s\n", terminal.Amount(r.Cluster.Resources,
			"resource"), terminal.Amount(r.Cluster.Objects, "object"))
	}
	if r.Covered != nil {
		fmt.Fprintf(w, "\nCompared with the coverage of the history: %s, %s\n", terminal.Amount(r.Covered.Resources,
			"resource"), terminal.Amount(r.Covered.Versions, "version"))
	}
	if len(r.Notes) > 0 {
		fmt.Fprintln(w, "\nNot checked:")
		for _, note := range r.Notes {
			fmt.Fprintf(w, "  %s\n", terminal.OneLine(note))
		}
	}
	fmt.Fprintln(w)
	_, err := fmt.Fprintln(w, summary(r))
	return err
}

// printReported prints what the stream itself reports as missing.
func printReported(w io.Writer, r *verify.Report) {
	shown, all := 0, 0
	for i := range r.Resources {
		x := &r.Resources[i]
		all += len(x.Reported)
		for _, reported := range x.Reported {
			if shown++; shown > maxShown {
				break
			}
			if shown == 1 {
				fmt.Fprintln(w, "\nReported by the stream itself:")
			}
			fmt.Fprintf(w, "  %s %s: %s, versions %s to %s (%s)\n", terminal.OneLine(x.Informer),
				terminal.OneLine(x.Resource), terminal.OneLine(reported.Reason), orDash(reported.From),
				orDash(reported.To),
				reported.At)
		}
	}
	if all > maxShown {
		fmt.Fprintf(w, "  and %s more; -o json has them\n", terminal.Thousands(all-maxShown))
	}
}

func printFound(w io.Writer, r *verify.Report) {
	if len(r.Found) == 0 {
		return
	}
	fmt.Fprintln(w, "\nFaults:")
	t := terminal.NewTable(w)
	for _, f := range r.Found[:min(len(r.Found), maxShown)] {
		at := "-"
		if f.At.Lane != "" {
			at = f.At.String()
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", f.Kind, terminal.OneLine(f.Object), orDash(f.Version),
			terminal.OneLine(at), terminal.OneLine(f.What))
	}
	_ = t.Flush() // the last line returns the error
	if more := len(r.Found) - maxShown; more > 0 {
		fmt.Fprintf(w, "  and %s more; -o json has the first 1,000\n", terminal.Thousands(more))
	}
}

// summary returns the report in a line: "wrong: 3 break, 1 disorder".
func summary(r *verify.Report) string {
	var wrong []string
	for _, kind := range verify.Kinds {
		if n := r.Faults[kind]; n > 0 {
			wrong = append(wrong, fmt.Sprintf("%s %s", terminal.Thousands(n), kind))
		}
	}
	switch {
	case len(wrong) > 0:
		return "wrong: " + strings.Join(wrong, ", ")
	case !r.ReadToEnd && r.Messages == 0:
		return "nothing was read"
	case !r.ReadToEnd:
		return "nothing is wrong in what was read, but the stream was not read to its end"
	case r.Events == 0:
		return "nothing is wrong: there are no events"
	case r.Cluster != nil && r.Cluster.Resources == 0:
		return "nothing is wrong in the stream, and no resource of it could be compared with the API server"
	}
	return "nothing is wrong"
}

func sortedNames(counts map[string]int) []string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return terminal.OneLine(text)
}

func newArchiveCommand() *cobra.Command {
	o := streams.ArchiveOptions{SourceOptions: streams.SourceOptions{Client: "bridge archive"}}
	cmd := &cobra.Command{
		Use:   "archive --dir DIR [--from ADDRESS]",
		Short: "Read a stream into a history that can be asked",
		Long: `archive reads a stream from its first message and keeps every version of every object in a
directory, which 'bridge history', 'bridge show', 'bridge diff' and 'bridge timeline' answer from.
It runs on any machine that sees the broker, and needs neither the bridge nor the cluster.

It follows the stream until it is stopped; with --once it ends at the end that the stream has. It
can be stopped at any moment, also by kill -9, and continues where it was. An event that comes twice
is stored once. Several streams, also of several clusters, may go into one directory, one after the
other; two processes can't write to it at once. Questions can be asked meanwhile.

What the stream has removed before it was read is missing: archive counts it, and answers that cross
it say so. A file is read from its start and ends the command.

Payloads: the stream should carry whole objects (payload: object or change). Of 'patch' the object
is made where the version before is known. Of 'metadata' and 'reference' there is no more than they
have, and answers say so. Redacted values stay redacted.

Exit codes: 0 after a stop, or at the end with --once; 1 when it failed while it ran; 2 when it
could not start.`,
		Example: `  bridge archive --dir /var/lib/history                     what 'bridge run' without a file stores
  bridge archive --from nats://nats:4222/K8S --dir /var/lib/history
  bridge archive --from 'kafka://kafka-0:9092/k8s.prod.*' --dir /var/lib/history --once
  bridge archive --config bridge.yaml --sink audit --dir /var/lib/history
  zcat events.json.gz | bridge archive --from - --dir history`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "cluster", "log.level", "log.format")
	cmd.Flags().StringVar(&o.From, "from", "",
		"stream to read: nats://host/STREAM, kafka://host/topic, a file of structured events, or "+
			"- ; * in a name stands for anything; none: that of the sink")
	cmd.Flags().StringVar(&o.Sink, "sink", "", "sink of the configuration whose address and "+
		"credentials are used; none: the only one")
	cmd.Flags().StringVar(&o.Dir, "dir", "", "directory of the history; it is created when missing")
	cmd.Flags().BoolVar(&o.Once, "once", false, "end at the end of the stream instead of following it")
	cmd.Flags().DurationVar(&o.Patience, "timeout", 30*time.Second,
		"how long to wait for a broker that does not answer")
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.MarkFlagRequired("dir")
	s.CompleteSinks(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Patience <= 0 {
			return errors.New("--timeout must be above 0")
		}
		var err error
		if o.Config, err = s.Load(); err != nil {
			return err
		}
		return runArchive(cmd, o)
	}
	return cmd
}

func runArchive(cmd *cobra.Command, o streams.ArchiveOptions) error {
	stderr := cmd.ErrOrStderr()
	o.Log = NewLogger(config.Log{Level: o.Config.Log.Level, Format: o.Config.Log.Format}, stderr)
	ctx, stop := UntilSignal(cmd.Context(), o.Log, os.Exit)
	defer stop()
	o.Stdin = cmd.InOrStdin()
	bar := terminal.NewBar(stderr, "messages")
	if bar != nil {
		o.Progress = bar.Show
	}
	o.CaughtUp = func(r streams.ArchiveReport) {
		bar.Clear()
		printArchived(stderr, &r)
		fmt.Fprintln(stderr, "bridge: the stream is read to its end, and followed; interrupt to stop")
	}
	report, err := streams.Archive(ctx, o)
	bar.Clear()
	if report != nil {
		printArchived(stderr, report)
	}
	if _, ok := errors.AsType[*streams.BeginError](err); ok {
		return Refused(err)
	}
	return Failed(err)
}

// printArchived says what was read and stored.
func printArchived(w io.Writer, r *streams.ArchiveReport) {
	fmt.Fprintf(w, "bridge: %s: %s read: %s and %s stored, %s, %s; %s takes %s\n",
		terminal.Plain(r.Source),
		terminal.Amount(r.Messages, "message"), terminal.Amount(r.Versions, "version"),
		terminal.Amount(r.Notices, "mark"),
		terminal.Amount(r.Repeats, "repeat"), terminal.Amount(r.Other, "other message"),
		terminal.Plain(r.Dir),
		terminal.Bytes(int64(r.DiskBytes)))
	if r.Removed > 0 {
		fmt.Fprintf(w, "bridge: %s: messages that the stream had removed before they "+
			"were read are missing\n",
			terminal.Amount(r.Removed, "removed stretch"))
	}
	if r.Damaged > 0 {
		fmt.Fprintf(w, "bridge: %s: messages in batches that can't be read are missing\n",
			terminal.Amount(r.Damaged, "damaged place"))
	}
}
