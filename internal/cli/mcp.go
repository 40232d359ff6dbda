package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/serve"
)

// maxToolAnswer bounds what a tool answers with, in bytes: a language model reads all of it.
const maxToolAnswer = 256 << 10

// tool is a question to a history, as a language model asks it.
type tool struct {
	name, question, description string
	parameters                  []string // those of the question; the required ones first
	required                    int
}

var tools = []tool{
	{
		"history", "versions", "Every version of an object: when, by whom, and what changed.",
		[]string{"object", "namespace", "since", "until", "limit", "cluster"},
		1,
	},
	{
		"object", "object", "An object as it was at a time.",
		[]string{"object", "namespace", "at", "cluster"},
		1,
	},
	{
		"diff", "diff", "What is different in an object between two times.",
		[]string{"object", "from", "to", "namespace", "cluster"},
		3,
	},
	{
		"timeline", "timeline", "What happened in a namespace or in the cluster, in order.",
		[]string{"namespace", "since", "until", "kind", "limit", "order", "before", "hide", "cluster"},
		0,
	},
	{
		"state", "state", "All objects as they were at a time. Give a namespace and kinds: it is long.",
		[]string{"at", "namespace", "kind", "selector", "cluster"},
		1,
	},
	{
		"coverage", "coverage", "What was watched without a break, and the gaps with their reasons.",
		[]string{"kind", "namespace", "since", "cluster"},
		0,
	},
}

var toolParameters = map[string]string{
	"object":    "kind and name, as deploy/web",
	"namespace": "its namespace; for several objects none means all",
	"cluster":   "for a history of several clusters",
	"at":        "a time as 2026-11-22T14:03:00Z, 14:03 or \"1h ago\", or a resourceVersion",
	"from":      "a time or a resourceVersion",
	"to":        "a time or a resourceVersion",
	"since":     "a time; a timeline begins an hour ago without it",
	"until":     "a time",
	"kind":      "kinds with commas between them, as deploy,pods; none: all",
	"limit":     "the most versions or changes, 1 to 500",
	"order":     "newest: the newest first",
	"before":    "next of an earlier answer, which this one continues",
	"hide":      "of status, derived, child: changes to leave out, and only count",
	"selector":  "labels, as app=web",
}

func newMCPCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Answer a language model's questions about a history (Model Context Protocol)",
		Long: `mcp is a server of the Model Context Protocol over standard input and output, for programs with a
language model. Its tools are history, object, diff, timeline, state and coverage: the questions of
the commands with these names, with their answers as JSON. What may be missing is in each answer, as
incomplete, uncertain and horizon. It reads the history beside a bridge that writes it, and changes
nothing. An answer has at most 256 KiB; a longer one is cut, and says so.

Exit codes: 0 when the client ends; 1 when it failed; 2 when there is no history.`,
		Example: `  bridge mcp --dir /var/lib/history
  npx @modelcontextprotocol/inspector bridge mcp --dir /var/lib/history`,
		Args: cobra.NoArgs,
	}
	o := historyFlags(cmd)
	o.namespace, cmd.Flags().Lookup("namespace").DefValue = "", ""
	cmd.Flags().Lookup("namespace").Usage = "namespace of questions that name none"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := o.directory()
		if err != nil {
			return err
		}
		source, err := serve.NewSharedHistory(dir, true)
		if err != nil {
			return Refused(err)
		}
		log := NewLogger(config.Log{Level: "info", Format: "auto"}, cmd.ErrOrStderr())
		ctx, stop := UntilSignal(cmd.Context(), log, os.Exit)
		defer stop()
		err = o.newToolServer(source).Run(ctx, &mcp.IOTransport{
			Reader: io.NopCloser(cmd.InOrStdin()), Writer: unclosed{cmd.OutOrStdout()},
		})
		if ctx.Err() != nil || errors.Is(err, io.EOF) {
			err = nil
		}
		return Failed(errors.Join(err, source.Close()))
	}
	return cmd
}

// unclosed is a writer that stays open.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

func (o *historyOptions) newToolServer(source *serve.SharedHistory) *mcp.Server {
	own := o.ownCluster()
	s := mcp.NewServer(&mcp.Implementation{Name: "bridge", Version: Build{}.complete().Version}, nil)
	for i := range tools {
		t := &tools[i]
		properties := map[string]any{}
		for _, name := range t.parameters {
			properties[name] = map[string]string{"type": "string", "description": toolParameters[name]}
		}
		s.AddTool(&mcp.Tool{
			Name: t.name, Description: t.description,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
			InputSchema: map[string]any{
				"type": "object", "properties": properties, "required": t.parameters[:t.required],
				"additionalProperties": false,
			},
		}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			parameters, err := t.read(r.Params.Arguments, map[string]string{
				"cluster": o.cluster, "namespace": o.namespace,
			})
			var text []byte
			if err == nil {
				text, err = t.answer(ctx, source, own, parameters)
			}
			if err != nil { // for the model, which may ask again
				text = []byte(err.Error())
			}
			return &mcp.CallToolResult{
				Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, IsError: err != nil,
			}, nil
		})
	}
	return s
}

// read reads arguments. Those that are not given are as in others.
func (t *tool) read(arguments json.RawMessage, others map[string]string) (url.Values, error) {
	given := map[string]string{}
	if len(arguments) > 0 {
		if err := json.Unmarshal(arguments, &given); err != nil {
			return nil, fmt.Errorf("want texts as arguments: %w", err)
		}
	}
	parameters := url.Values{}
	for name, value := range others {
		if slices.Contains(t.parameters, name) && value != "" {
			parameters.Set(name, value)
		}
	}
	for name, value := range given {
		if !slices.Contains(t.parameters, name) {
			return nil, fmt.Errorf("%s has no argument %q: it has %v", t.name, name, t.parameters)
		}
		parameters.Set(name, value)
	}
	for _, name := range t.parameters[:t.required] {
		if parameters.Get(name) == "" {
			return nil, fmt.Errorf("%s needs %s: %s", t.name, name, toolParameters[name])
		}
	}
	return parameters, nil
}

// answer returns the answer as JSON, one value a line.
func (t *tool) answer(
	ctx context.Context, source *serve.SharedHistory, own string, parameters url.Values,
) ([]byte, error) {
	questions, release, err := source.Open()
	if err != nil {
		return nil, err
	}
	defer release()
	var set ask.Set
	defer set.Serve(questions, ask.Place{Cluster: own})()
	found, err := set.Ask(ctx, t.question, parameters)
	if err != nil {
		return nil, err
	}
	lines, isSeveral := found.(iter.Seq2[any, error])
	if !isSeveral {
		lines = func(yield func(any, error) bool) { yield(found, nil) }
	}
	return collect(lines)
}

// collect writes values as lines, up to maxToolAnswer.
func collect(lines iter.Seq2[any, error]) ([]byte, error) {
	var text bytes.Buffer
	for value, err := range lines {
		if err != nil {
			return nil, err
		}
		line, err := json.Marshal(value)
		switch {
		case err != nil:
			return nil, err
		case text.Len()+len(line) > maxToolAnswer && text.Len() == 0:
			return nil, fmt.Errorf("the answer has %d bytes, at most %d are given: ask for less: a shorter "+
				"time, a kind, a namespace, a limit", len(line), maxToolAnswer)
		case text.Len()+len(line) > maxToolAnswer:
			fmt.Fprintln(&text, `{"cut":"there is more: ask for less, by a namespace, kinds or a selector"}`)
			return text.Bytes(), nil
		}
		text.Write(append(line, '\n'))
	}
	return text.Bytes(), nil
}
