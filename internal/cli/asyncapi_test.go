package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

// everySink has each kind of sink, payload and encoding.
const everySink = `
cluster: dev-cluster
informers:
  - name: all
    resources: [pods, deployments.apps]
    attributes: {team: metadata.labels.team}
    sinks:
      - {name: audit, payload: change}
      - {name: core, payload: metadata}
      - {name: now, payload: object}
      - {name: whole, payload: patch}
      - {name: lake, payload: debezium}
      - {name: view, payload: object}
      - {name: rows, payload: change}
      - {name: functions, types: knative, payload: reference}
sinks:
  - {name: audit, nats: {servers: ["nats://127.0.0.1:1"], embedded: true}}
  - name: core
    nats: {servers: ["nats://127.0.0.1:1"], mode: core, subject: "core.{resource}.{name}.{op}"}
  - {name: now, nats: {servers: ["nats://127.0.0.1:1"], mode: kv, bucket: NOW}}
  - name: whole
    nats:
      servers: ["nats://127.0.0.1:1"]
      stream: {name: WHOLE}
      subject: "whole.{resource}.{name}.{op}"
    encoding: structured
  - {name: lake, kafka: {brokers: ["127.0.0.1:2"], tombstones: true}}
  - {name: view, kafka: {brokers: ["127.0.0.1:2"], topic: "now.{resource}", view: true}}
  - name: rows
    kafka: {brokers: ["127.0.0.1:2"], topic: "rows.{resource}", deadLetterTopic: dead}
    encoding: flat
  - name: functions
    http: {url: "http://127.0.0.1:1/in", deadLetterURL: "http://127.0.0.1:1/dead"}
    encoding: structured
`

// TestAsyncAPIParser gives what schema prints to the parser of the AsyncAPI Initiative, which make
// test-readers installs.
func TestAsyncAPIParser(t *testing.T) {
	script := os.Getenv("ASYNCAPI_READER")
	if script == "" {
		t.Skip("no ASYNCAPI_READER: make test-readers")
	}
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	writeFile(t, file, everySink)
	parse := func(text string) (channels map[string]struct{ Messages int }, refused string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "node", script)
		cmd.Stdin = strings.NewReader(text)
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); err != nil {
			return nil, err.Error() + ": " + stderr.String()
		}
		var read struct {
			Version  string
			Channels map[string]struct{ Messages int }
		}
		testkit.OK(t, json.Unmarshal(out.Bytes(), &read))
		if read.Version != "3.0.0" {
			t.Errorf("it is of version %q", read.Version)
		}
		return read.Channels, ""
	}
	for _, output := range []string{"json", "yaml"} {
		t.Run(output, func(t *testing.T) {
			var out, stderr bytes.Buffer
			args := []string{"schema", "--config", file, "--output", output}
			if code := run(t.Context(), args, nil, &out, &stderr); code != ExitClean {
				t.Fatalf("exit code %d: %s", code, stderr.String())
			}
			channels, refused := parse(out.String())
			if refused != "" {
				t.Fatal(refused)
			}
			for _, sink := range []string{"audit", "core", "now", "whole", "lake", "view", "rows", "functions"} {
				if channels[sink].Messages < 4 {
					t.Errorf("%s has %d messages", sink, channels[sink].Messages)
				}
			}
			broken := strings.Replace(out.String(), "3.0.0", "3.0", 1)
			if _, refused := parse(broken); refused == "" {
				t.Error("a document of no version is taken")
			}
			const ref = "#/components/messages/"
			broken = strings.Replace(out.String(), ref+"audit.all.object.added", ref+"none", 1)
			if _, refused := parse(broken); broken == out.String() || refused == "" {
				t.Error("a document with a reference to nothing is taken")
			}
		})
	}
}
