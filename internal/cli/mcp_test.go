package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A client of the protocol asks each question, and gets answers with their limits.
func TestMCP(t *testing.T) {
	dir := t.TempDir()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(t, err)
	defer db.Close()
	at := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	var events []*event.Event
	for i := range 3000 {
		events = append(events, &event.Event{
			ID: fmt.Sprint(i), Source: "/clusters/prod", Type: "dev.kubebridge.resource.added", Op: event.Added, Time: at, Informer: "all",
			ObjectAttributes: event.ObjectAttributes{
				Resource: "pods", Kind: "Pod", APIVersion: "v1", Namespace: "shop", Name: fmt.Sprint("web-", i), UID: fmt.Sprint(i), ResourceVersion: fmt.Sprint(i + 1),
			},
			Sequence: fmt.Sprintf("00000000.%020d", i+1), Data: fmt.Appendf(nil, `{"metadata":{"name":"web-%d","namespace":"shop"},"spec":{"nodeName":"n1"}}`, i),
		})
	}
	later := *events[0]
	later.ID, later.Op, later.Type, later.Time = "later", event.Updated, "dev.kubebridge.resource.updated", at.Add(time.Minute)
	later.ResourceVersion, later.Previous, later.Sequence = "5000", "1", fmt.Sprintf("00000000.%020d", 5000)
	later.Data = []byte(`{"metadata":{"name":"web-0","namespace":"shop"},"spec":{"nodeName":"n2"}}`)
	_, err = db.Writer.Append(t.Context(), append(events, &later))
	testkit.OK(t, err)

	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	cmd := newMCPCommand()
	cmd.SetArgs([]string{"--dir", dir, "--namespace", "shop"})
	cmd.SetIn(toServer)
	cmd.SetOut(fromServer)
	cmd.SetErr(io.Discard)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(t.Context()) }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: toClient, Writer: fromClient}, nil)
	testkit.OK(t, err)

	list, err := session.ListTools(t.Context(), nil)
	testkit.OK(t, err)
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if !tool.Annotations.ReadOnlyHint || tool.InputSchema == nil {
			t.Errorf("%+v", tool)
		}
	}
	if slices.Sort(names); strings.Join(names, " ") != "coverage diff history object state timeline" {
		t.Errorf("tools %v", names)
	}
	for _, test := range []struct {
		tool      string
		arguments map[string]any
		has       string // what the answer has
		isError   bool
	}{
		{"history", map[string]any{"object": "pod/web-0", "namespace": "shop"}, `"spec.nodeName"`, false},
		{"history", map[string]any{"object": "pod/web-0", "limit": "1"}, `"earlier":1`, false},
		{"history", map[string]any{"object": "pod/none", "namespace": "shop"}, "has never seen", true},
		{"history", map[string]any{"object": "pod/web-0", "at": "1"}, `no argument "at"`, true},
		{"history", map[string]any{}, "history needs object", true},
		{"history", map[string]any{"object": 1}, "want texts", true},
		{"object", map[string]any{"object": "pod/web-0", "namespace": "shop", "at": "5"}, `"nodeName":"n1"`, false},
		{"diff", map[string]any{"object": "pod/web-0", "namespace": "shop", "from": "5", "to": "5000"}, `"new":"n2"`, false},
		{"timeline", map[string]any{"namespace": "shop", "since": at.Add(time.Second).Format(time.RFC3339)}, `"changes":[{"cluster":"prod","resource":"pods","namespace":"shop","name":"web-0"`, false},
		{"timeline", map[string]any{"limit": "0"}, "want 1 to", true},
		{"state", map[string]any{"at": "5", "namespace": "shop", "kind": "pods"}, `"incomplete":[`, false},
		{"state", map[string]any{"at": "5000", "namespace": "shop"}, `{"cut":`, false},
		{"state", map[string]any{"at": "9999"}, "the history of cluster prod reaches to 5000", true},
		{"coverage", map[string]any{}, `"pods"`, false},
	} {
		t.Run(fmt.Sprint(test.tool, test.arguments), func(t *testing.T) {
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: test.tool, Arguments: test.arguments})
			testkit.OK(t, err)
			text, isText := result.Content[0].(*mcp.TextContent)
			if !isText || !strings.Contains(text.Text, test.has) || result.IsError != test.isError || len(text.Text) > maxToolAnswer+1000 {
				t.Errorf("%.1000s, error %t, want %s", text.Text, result.IsError, test.has)
			}
			for line := range strings.Lines(text.Text) {
				if !test.isError && !json.Valid([]byte(line)) {
					t.Errorf("no JSON: %.300s", line)
				}
			}
		})
	}
	testkit.OK(t, session.Close())
	fromClient.Close()
	select {
	case err := <-ended:
		testkit.OK(t, err)
	case <-time.After(30 * time.Second):
		t.Error("it does not end with its client")
	}
}
