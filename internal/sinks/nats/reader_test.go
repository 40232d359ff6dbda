package nats_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// read is one message as the reader in test/readers/nats understands it.
type read struct {
	Subject    string         `json:"subject"`
	MessageID  string         `json:"msgid"`
	Attributes map[string]any `json:"attributes"`
	Data       []byte         `json:"data"`
}

// readWithNode reads the stream with nats.js and the CloudEvents SDK for JavaScript.
func readWithNode(t *testing.T, url string) (messages []read) {
	t.Helper()
	script := os.Getenv("NATS_READER")
	if script == "" {
		t.Skip("make test-readers installs the reader and runs this")
	}
	cmd := exec.CommandContext(t.Context(), "node", script, url, "K8S")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var m read
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	return messages
}

func TestIndependentReader(t *testing.T) {
	for _, encoding := range []string{nats.Binary, nats.Structured} {
		t.Run(encoding, func(t *testing.T) {
			ts := newTestServer(t)
			sink := ts.openSink(withBucket, func(c *nats.Config) { c.Encoding = encoding })
			events := readersEvents()
			for _, e := range events {
				mustStore(t, sink, e) // one by one: the order is part of what is compared
			}
			large := sinktest.NewEvent("large", 1, 3<<20)
			dataref, err := sink.Claim(t.Context(), large)
			if err != nil {
				t.Fatal(err)
			}
			mustStore(t, sink, event.Claimed(large, dataref))
			got := readWithNode(t, ts.url())
			if len(got) != len(events)+1 {
				t.Fatalf("%d messages were read, want %d", len(got), len(events)+1)
			}
			for i, e := range events {
				wantRead(t, got[i], e, e.Data)
			}
			wantRead(t, got[len(events)], event.Claimed(large, dataref), large.Data)
		})
	}
}

// readersEvents are versions of a few objects, and events with everything in them that has to be
// encoded.
func readersEvents() []*event.Event {
	var events []*event.Event
	for version := 1; version <= 20; version++ {
		for _, name := range []string{"web", "api", "job"} {
			events = append(events, sinktest.NewEvent(name, version, 200+version*300))
		}
	}
	odd, empty, deleted := ev("odd", 1), ev("empty", 1), ev("gone", 1)
	odd.Manager = `kubectl "edit" 100% – Ωμέγα 🚀`
	odd.Name = "system:node:a.b"
	odd.Data = []byte(`{"text":"<&>\u00e9é\/","n":1.50e3, "big":12345678901234567890}`)
	empty.Data = nil
	deleted.Op, deleted.Type, deleted.ID = event.Deleted, "dev.kubebridge.resource.deleted",
		"uid-gone/deleted"
	deleted.Initial, deleted.Inferred, deleted.Cause = true, true, "deleted"
	return append(events, odd, empty, deleted)
}

func wantRead(t *testing.T, got read, e *event.Event, data []byte) {
	t.Helper()
	want := map[string]string{}
	e.Each(func(name, value string) { want[name] = value })
	found := map[string]string{}
	for name, value := range got.Attributes {
		found[name] = fmt.Sprint(value)
	}
	if want["datacontenttype"] == "" {
		delete(found, "datacontenttype") // the SDK's HTTP binding adds one
	}
	// The SDK keeps milliseconds.
	want["time"], found["time"] = want["time"][:len("2026-11-21T10:20:30.123")],
		found["time"][:len("2026-11-21T10:20:30.123")]
	if !maps.Equal(found, want) {
		t.Errorf("%s: attributes\n got %v\nwant %v", e.ID, found, want)
	}
	if !bytes.Equal(got.Data, data) {
		t.Errorf("%s: got %d bytes %.200q, want %d bytes %.200q", e.ID, len(got.Data), got.Data,
			len(data), data)
	}
	if got.MessageID != e.MessageID() {
		t.Errorf("%s: Nats-Msg-Id %q, want %q", e.ID, got.MessageID, e.MessageID())
	}
}
