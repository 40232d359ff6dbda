package nats_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
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
	for _, encoding := range []string{sinks.Binary, sinks.Structured} {
		t.Run(encoding, func(t *testing.T) {
			ts := newTestServer(t)
			sink := ts.openSink(withBucket, func(c *nats.Options) { c.Encoding = encoding })
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

// bucketReaders are commands that print the keys of a bucket, with clients for JavaScript and
// Python.
func bucketReaders(t *testing.T) map[string][]string {
	t.Helper()
	script, python := os.Getenv("NATS_READER"), os.Getenv("NATS_PYTHON")
	if script == "" || python == "" {
		t.Skip("make test-readers installs the readers and runs this")
	}
	dir := filepath.Dir(script)
	return map[string][]string{
		"Node":   {"node", filepath.Join(dir, "bucket.mjs")},
		"Python": {python, filepath.Join(dir, "bucket.py")},
	}
}

// The bucket is that of any client: it has the newest value of each object that exists, through a
// restart of the server and of the sink, and a list that says what is gone.
func TestIndependentReaderBucket(t *testing.T) {
	readers := bucketReaders(t)
	for _, encoding := range []string{sinks.Binary, sinks.Structured} {
		t.Run(encoding, func(t *testing.T) {
			ts := newTestServer(t)
			change := func(c *nats.Options) { c.Encoding = encoding }
			first := ts.openSink(inBucket, change)
			want := map[string]*event.Event{}
			for version := 1; version <= 3; version++ {
				for _, name := range []string{"web", "a.b", "system:node", "é", "vanished", "deleted"} {
					e := ev(name, version)
					mustStore(t, first, e)
					want[string(event.AppendKeyToken([]byte(key), name))] = e
				}
			}
			mustStore(t, first, gone("deleted", 4))
			_ = first.Close()
			ts.restart()
			second := ts.openSink(inBucket, change)
			newest := ev("web", 5)
			mustStore(t, second, newest)
			if err := publishEnd(t, second, 9, "web", "a.b", "system:node", "é"); err != nil {
				t.Fatal(err)
			}
			want[key+"web"], want["_informers.workloads.deployments_apps.synced"] = newest, listEnd(9)
			delete(want, key+"vanished")
			delete(want, key+"deleted")
			for name, command := range readers {
				got := readBucket(t, command, ts.url())
				for key, e := range want {
					value := e.Data
					if encoding == sinks.Structured {
						value = event.AppendStructured(nil, e)
					}
					if !bytes.Equal(got[key], value) {
						t.Errorf("%s: %s is %q, want %q", name, key, got[key], value)
					}
				}
				if len(got) != len(want) {
					t.Errorf("%s: %d keys, want %d", name, len(got), len(want))
				}
			}
		})
	}
}

func readBucket(t *testing.T, command []string, url string) map[string][]byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], url, "SHOP")...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	got := map[string][]byte{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var entry struct {
			Key   string
			Value []byte
		}
		if err := d.Decode(&entry); err != nil {
			t.Fatal(err)
		}
		got[entry.Key] = entry.Value
	}
	return got
}
