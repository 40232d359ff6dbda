package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher/refused"
	"github.com/kubebridge/bridge/internal/testkit"
)

// inlineCode matches code in a line of Markdown, which may go over the end of the line.
var inlineCode = regexp.MustCompile("`([^`]+)`")

// runbookCommands are the commands of the bridge that the runbooks name, each once.
func runbookCommands(t *testing.T) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/runbooks.md")
	testkit.OK(t, err)
	for i, part := range strings.Split(string(text), "```") {
		if i%2 == 1 {
			continue // a block: the function by which these commands reach a pod
		}
		for _, found := range inlineCode.FindAllStringSubmatch(part, -1) {
			command := strings.Join(strings.Fields(found[1]), " ")
			if strings.HasPrefix(command, "bridge ") && !slices.Contains(commands, command) {
				commands = append(commands, command)
			}
		}
	}
	return commands
}

// TestRunbookCommands carries out each command of the runbooks, on a bridge that runs as in a pod:
// by the configuration that BRIDGE_CONFIG names.
func TestRunbookCommands(t *testing.T) {
	commands := runbookCommands(t)
	if len(commands) < 10 {
		t.Fatalf("only %d commands were found: %q", len(commands), commands)
	}
	dir, admin := t.TempDir(), testkit.Address(t)
	file, state, key := filepath.Join(dir, "bridge.yaml"), filepath.Join(dir, "state"), filepath.Join(dir, "key")
	testkit.OK(t, os.WriteFile(key, []byte(redactionKey), 0o600))
	url, js := newJetStream(t)
	text := "kubernetes: {kubeconfig: " + kubeconfigFile(t) + "}\nstate: {dir: " + state + "}\nadmin: {address: \"" + admin + "\"}\n" +
		"redaction: {keyFile: " + key + "}\n" +
		"informers: [{name: workloads, resources: [pods]}]\nsinks: [{name: out, stdout: {}}, {name: bus, nats: {servers: [\"" + url + "\"]}}]\n"
	testkit.OK(t, os.WriteFile(file, []byte(text), 0o600))
	t.Setenv("BRIDGE_CONFIG", file)
	kept := refused.New(refused.Config{Dir: filepath.Join(state, "undelivered"), MaxBytes: 1 << 20})
	keep := func() {
		testkit.OK(t, kept.Keep(&event.Event{
			ID: "a/1", Source: "/clusters/c", Type: "dev.kubebridge.resource.added", Time: time.Unix(1e9, 0), Data: []byte(`{}`),
		}, refused.Refusal{Sink: "out", Reason: "too large", Attempts: 1, Kept: time.Now()}))
	}
	keep()
	addDeadLetter := func() { // a dead letter, in the place that is the default
		letter := newLetter(t, "a/1", "{}")
		letter.Subject = "k8s.dev-cluster._deadletter.pods.added"
		_, err := js.PublishMsg(t.Context(), letter)
		testkit.OK(t, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var log testkit.Buffer
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"run"}, nil, io.Discard, &log) }()
	defer func() {
		cancel()
		if code := <-ended; code != ExitClean {
			t.Errorf("exit code %d\n%s", code, log.String())
		}
	}()
	testkit.Eventually(t, "the bridge is ready", func() bool {
		return run(ctx, []string{"status"}, nil, io.Discard, io.Discard) == ExitClean
	})
	var listed testkit.Buffer
	if code := run(ctx, []string{"undelivered", "ls", "--output", "json"}, nil, &listed, io.Discard); code != ExitClean {
		t.Fatal(code)
	}
	var entries []struct{ ID string }
	if err := json.Unmarshal([]byte(listed.String()), &entries); err != nil || len(entries) != 1 {
		t.Fatalf("%v: %s", err, listed.String())
	}
	placeholders := strings.NewReplacer("informer NAME", "informer workloads", "INFORMER", "workloads", "NAME", "out",
		"ID", entries[0].ID, "…", file)
	for _, line := range commands {
		t.Run(line, func(t *testing.T) {
			if strings.HasPrefix(line, "bridge deadletters ") {
				addDeadLetter()
				line = strings.ReplaceAll(line, "NAME", "bus")
			}
			args := strings.Fields(placeholders.Replace(line))[1:]
			if args[0] == "undelivered" { // one before may have sent or removed the event
				keep()
			}
			if args[0] == "resume" { // of what was paused before
				pause := append([]string{"pause"}, args[1:]...)
				if code := run(ctx, pause, nil, io.Discard, io.Discard); code != ExitClean {
					t.Fatalf("pause: exit code %d", code)
				}
			}
			until := ctx
			if slices.Contains(args, "--watch") {
				var end context.CancelFunc
				until, end = context.WithTimeout(ctx, time.Second)
				defer end()
			}
			var stdout, stderr testkit.Buffer
			if code := run(until, args, strings.NewReader(""), &stdout, &stderr); code != ExitClean {
				t.Errorf("%q: exit code %d\n%s%s", args, code, stdout.String(), stderr.String())
			}
		})
	}
	var letters testkit.Buffer
	if code := run(ctx, []string{"dlq", "ls"}, nil, &letters, io.Discard); code != ExitClean || letters.String() != "No dead letters.\n" {
		t.Errorf("exit code %d: %s", code, letters.String())
	}
	var status testkit.Buffer
	if code := run(ctx, []string{"status", "--output", "json"}, nil, &status, io.Discard); code != ExitClean || strings.Contains(status.String(), "pausedBy") {
		t.Errorf("exit code %d: %s", code, status.String())
	}
	if left, _ := filepath.Glob(filepath.Join(state, "undelivered", "out", "*.json")); len(left) != 0 {
		t.Errorf("an event that was removed is there: %v", left)
	}
}
