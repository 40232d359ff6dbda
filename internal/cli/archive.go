package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/cli/terminal"
)

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
	o.Log = NewLogger(config.Log{Level: o.Config.Log.Level, Format: o.Config.Log.Format},
		stderr)
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
		terminal.Amount(r.Marks, "mark"),
		terminal.Amount(r.Repeats, "repeat"), terminal.Amount(r.Other, "other message"),
		terminal.Plain(r.Dir),
		terminal.Bytes(int64(r.DiskBytes)))
	if r.Removed > 0 {
		fmt.Fprintf(w, "bridge: %s: messages that the stream had removed before they "+
			"were read are missing\n",
			terminal.Amount(r.Removed, "removed stretch"))
	}
}
