package kafkatest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// TestOtherReaders has librdkafka and the Python CloudEvents SDK read what the sink
// has written: attributes, order and bytes must be those that were sent.
func TestOtherReaders(t *testing.T) {
	c := broker(t)
	python := os.Getenv("PYTHON")
	if python == "" {
		t.Skip("PYTHON does not name an interpreter with the packages of testdata/requirements.txt: run make test-kafka")
	}
	for _, encoding := range []string{sinks.Binary, sinks.Structured} {
		for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
			t.Run(encoding+", "+compression, func(t *testing.T) {
				topic := fmt.Sprintf("readers%d", destinations.Add(1))
				sent := publishMany(t, topic, encoding, compression)
				out, err := exec.CommandContext(t.Context(), python, "testdata/read.py", c.Nodes[0].Address, topic).Output()
				if err != nil {
					t.Fatalf("%v\n%s%s", err, out, stderr(err))
				}
				requireSame(t, sent, out)
			})
		}
	}
}

// publishMany sends events of some objects, by key.
func publishMany(t *testing.T, topic, encoding, compression string) map[string][]*event.Event {
	t.Helper()
	s := openSink(t, broker(t), func(k *kafka.Options) {
		k.Topic, k.Encoding, k.Compression = topic, encoding, compression
	})
	sent := map[string][]*event.Event{}
	for version := 1; version <= 20; version++ {
		for i := range 10 {
			e := sinktest.NewEvent(fmt.Sprintf("web-%d", i), version, 700)
			if i == 3 {
				e.Name, e.Manager = "web-ü-"+`"%`, "täst \"1\" 100%"
			}
			publishAs(t, s, e)
			sent[e.PartitionKey] = append(sent[e.PartitionKey], e)
		}
	}
	return sent
}

func publishAs(t *testing.T, s *kafka.Sink, e *event.Event) {
	t.Helper()
	m := &sinks.Message{Event: e}
	s.Publish(t.Context(), []*sinks.Message{m})
	must(t, m.Err)
}

// requireSame compares what a reader has printed with what was sent.
func requireSame(t *testing.T, sent map[string][]*event.Event, out []byte) {
	t.Helper()
	for line := range bytes.Lines(out) {
		var got struct {
			Key        string
			Attributes map[string]string
			Time       float64
			Data       []byte
			Document   json.RawMessage
		}
		must(t, json.Unmarshal(line, &got))
		if len(sent[got.Key]) == 0 {
			t.Fatalf("%s: more than was sent", got.Key)
		}
		e := sent[got.Key][0]
		sent[got.Key] = sent[got.Key][1:]
		want := map[string]string{}
		e.Each(func(name, value string) { want[name] = value })
		delete(want, "time")
		for name, value := range want {
			if got.Attributes[name] != value {
				t.Errorf("%s: %s is %q, want %q", e.ID, name, got.Attributes[name], value)
			}
			delete(got.Attributes, name)
		}
		if len(got.Attributes) > 0 {
			t.Errorf("%s: there is also %v", e.ID, got.Attributes)
		}
		if at := float64(e.Time.UnixMicro()) / 1e6; math.Abs(got.Time-at) > 1e-5 {
			t.Errorf("%s: time %f, want %f", e.ID, got.Time, at)
		}
		if got.Document == nil && !bytes.Equal(got.Data, e.Data) {
			t.Errorf("%s: data %q, want %q", e.ID, got.Data, e.Data)
		}
		if got.Document != nil && !sameJSON(t, got.Document, e.Data) {
			t.Errorf("%s: data %s, want %s", e.ID, got.Document, e.Data)
		}
	}
	for key, left := range sent {
		if len(left) > 0 {
			t.Errorf("%s: %d events are missing", key, len(left))
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	must(t, json.Unmarshal(a, &x))
	must(t, json.Unmarshal(b, &y))
	left, _ := json.Marshal(x)
	right, _ := json.Marshal(y)
	return bytes.Equal(left, right)
}

func stderr(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(exit.Stderr)
	}
	return ""
}

// TestStructuredEventsSchema checks them against the JSON schema of CloudEvents, and sees
// that the check can fail.
func TestStructuredEventsSchema(t *testing.T) {
	c := broker(t)
	modules := os.Getenv("NODE_DIR")
	if modules == "" {
		t.Skip("NODE_DIR does not name a directory with the packages of testdata/package.json: run make test-kafka")
	}
	topic := fmt.Sprintf("schema%d", destinations.Add(1))
	publishMany(t, topic, sinks.Structured, "lz4")
	var lines [][]byte
	for _, r := range readAll(t, c, topic) {
		lines = append(lines, r.Value)
	}
	want := slices.Repeat([]string{"valid"}, len(lines))
	lines = append(lines, []byte(`{"specversion":"1.0","id":"","source":"/x","type":"t"}`), []byte(`{"specversion":"1.0","id":"1","type":"t"}`))
	cmd := exec.CommandContext(t.Context(), "node", "testdata/validate.js", modules)
	cmd.Stdin = bytes.NewReader(bytes.Join(lines, []byte("\n")))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr(err))
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(got) != len(lines) || !slices.Equal(got[:len(want)], want) {
		t.Fatalf("%d answers for %d events: %.1000s", len(got), len(lines), out)
	}
	for _, answer := range got[len(want):] {
		if !strings.HasPrefix(answer, "schema:") {
			t.Errorf("a document that is no event is %s", answer)
		}
	}
}

// TestJavaPartitions has the Java client send records with the keys of events.
func TestJavaPartitions(t *testing.T) {
	c := broker(t)
	topic := fmt.Sprintf("java%d", destinations.Add(1))
	s := openSink(t, c, func(k *kafka.Options) {
		k.Topic, k.CreateTopics = topic, &kafka.CreateTopics{Partitions: 12, ReplicationFactor: 1}
	})
	var keys, want []string
	for i := range 400 {
		e := sinktest.NewEvent(fmt.Sprintf("web-%d-ünï", i), 1, 100)
		lane, err := s.Lane(t.Context(), e)
		must(t, err)
		keys, want = append(keys, e.PartitionKey), append(want, strings.TrimPrefix(lane, topic+"/"))
	}
	cmd := c.Java("testdata/Produce.java", c.Nodes[0].Address, topic)
	cmd.Stdin = strings.NewReader(strings.Join(keys, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr(err))
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("Java's producer chooses\n%v\nthe sink\n%v", got, want)
	}
}
