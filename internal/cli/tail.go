package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/publisher/tail"
)

func newTailCommand() *cobra.Command {
	filter, payload, output := "", false, "short"
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print what a running bridge's sinks acknowledge",
		Long: `tail prints the events of a running bridge as its sinks settle them, from now on, until
Ctrl-C. It reads no broker: it asks the bridge's admin server. Sinks are not affected: events that
come too fast for the terminal are counted and left out.

The filter is a CEL condition, with op and meta as in the configuration, but not the object:

  meta.resource == "pods" && meta.namespace == "shop"   also kind, group, name, manager, initial, inferred
  op == "deleted" && meta.name.startsWith("web-")       op is added, updated, deleted, synced, gap, …
  sink == "lake" && outcome != "acknowledged"           dead letters, and events that were read back
  attempts > 1 || bytes > 100000

Exit codes: 0 after Ctrl-C, 1 when the bridge ended, 2 when it can't be asked.`,
		Example: `  bridge tail
  bridge tail --filter 'meta.resource == "deployments" && op != "updated"'
  bridge tail --payload -o json | jq .payload
  kubectl exec bridge-0 -- bridge tail`,
		Args: cobra.NoArgs,
	}
	c := newClient(cmd)
	cmd.Flags().StringVar(&filter, "filter", "", "which events, as a CEL condition; none: all")
	cmd.Flags().BoolVar(&payload, "payload", false, "with the payload, as far as "+
		terminal.Bytes(tail.MaxPayload)+" of it; for --output json")
	OutputFlag(cmd, &output, "short", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		at, err := c.endpoint()
		if err != nil {
			return Refused(err)
		}
		query := url.Values{}
		if filter != "" {
			query.Set("filter", filter)
		}
		if payload {
			query.Set("payload", "true")
		}
		ctx, stop := untilInterrupted(cmd.Context())
		defer stop()
		t := &tailView{
			client: newStatusClient(at, c.Token), out: cmd.OutOrStdout(),
			stderr: cmd.ErrOrStderr(), json: output == "json",
		}
		if err := t.run(ctx, "/tail?"+query.Encode()); ctx.Err() == nil {
			return err
		}
		return nil
	}
	return cmd
}

// tailView prints the events of a stream.
type tailView struct {
	client      *statusClient
	out, stderr io.Writer
	json        bool
}

// run prints events until ctx ends, or the stream, which is an error with its exit code.
func (t *tailView) run(ctx context.Context, path string) error {
	t.client.http.Timeout = 0 // a stream has no end
	response, err := t.client.stream(ctx, path)
	if err != nil {
		return Refused(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReaderSize(response.Body, 1<<16)
	for {
		line, err := within(response.Body, silence, lines)
		if err != nil {
			return Failed(fmt.Errorf("the bridge at %s ended the stream: %w",
				t.client.address, err))
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue // a sign of life
		}
		var batch tail.Batch
		if err := json.Unmarshal(data, &batch); err != nil {
			return Failed(fmt.Errorf("%s is not the admin endpoint of a bridge of this version: %w",
				t.client.address, err))
		}
		if err := t.print(&batch); err != nil {
			return Failed(err)
		}
	}
}

// silence is how long a bridge may send nothing: it sends a sign of life every 10 seconds.
const silence = 30 * time.Second

// within reads a line, in no more than a time.
func within(body io.Closer, patience time.Duration, lines *bufio.Reader) ([]byte, error) {
	late := time.AfterFunc(patience, func() { _ = body.Close() }) // ends the read
	line, err := lines.ReadBytes('\n')
	if !late.Stop() {
		return nil, fmt.Errorf("it was silent for %v", patience)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it stopped")
	}
	return line, err
}

func (t *tailView) print(b *tail.Batch) error {
	for i := range b.Events {
		e, err := &b.Events[i], error(nil)
		if t.json {
			err = terminal.PrintLine(t.out, e)
		} else {
			_, err = io.WriteString(t.out, shortEvent(e))
		}
		if err != nil {
			return err
		}
	}
	if b.Dropped > 0 {
		fmt.Fprintf(t.stderr, "%s left out: they came too fast\n", terminal.Amount(b.Dropped, "event"))
	}
	return nil
}

// shortEvent returns a line for people: when, what, which object, its version, the sink, how long
// it took.
func shortEvent(e *tail.Event) string {
	object := e.Name
	if e.Namespace != "" {
		object = e.Namespace + "/" + e.Name
	}
	if e.Name == "" {
		object = e.Subject
	}
	line := fmt.Sprintf("%s  %-8s %-24s %-40s %-10s %s %s",
		e.Settled.Local().Format("15:04:05.000"), e.Op, e.Resource, object, e.Version, e.Sink,
		seconds(e.Seconds))
	if e.Outcome != "acknowledged" {
		line += " " + string(e.Outcome)
	}
	if e.Attempts > 1 {
		line += fmt.Sprintf(" %d attempts", e.Attempts)
	}
	return strings.TrimRight(terminal.Plain(strings.ReplaceAll(line, "\n", " ")), " ") + "\n"
}

// stream asks for an answer without an end. The caller closes its body.
func (k *statusClient) stream(ctx context.Context, path string) (*http.Response, error) {
	response, err := k.open(ctx, path, "")
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		response.Body.Close() //nolint:gosec // of what was only read
		token, noToken := k.secret()
		if noToken != nil {
			return nil, fmt.Errorf("the bridge at %s asks for its token: %w", k.address, noToken)
		}
		response, err = k.open(ctx, path, token)
	}
	if err != nil || response.StatusCode == http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, k.unanswered(err)
	}
	return nil, k.refusal(response.StatusCode, body, "/tail")
}
