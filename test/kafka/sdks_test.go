package kafkatest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	ce "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	bridgehttp "github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// carried is a message as a client gives it to an SDK. Key is empty for a request.
type carried struct {
	Headers map[string]string `json:"headers"`
	Key     string            `json:"key"`
	Body    []byte            `json:"body"`
}

// TestSDKs has the SDKs of CloudEvents read events with attributes that a header of HTTP holds
// percent-encoded only. Structured events, and those of Kafka, have the right values in each SDK.
// That SDKs leave headers of HTTP encoded is why docs/consumers.md asks for structured ones.
func TestSDKs(t *testing.T) {
	sdks := map[string]func(*testing.T, []carried) []map[string]string{
		"Go": readWithGo,
		"Python": func(t *testing.T, all []carried) []map[string]string {
			return readWith(t, exec.CommandContext(t.Context(), needed(t, "PYTHON"), "testdata/sdk.py", "core"), all)
		},
		"Python, its older module": func(t *testing.T, all []carried) []map[string]string {
			return readWith(t, exec.CommandContext(t.Context(), needed(t, "PYTHON"), "testdata/sdk.py", "v1"), all)
		},
		"JavaScript": func(t *testing.T, all []carried) []map[string]string {
			return readWith(t, exec.CommandContext(t.Context(), "node", "testdata/sdk.js", needed(t, "NODE_DIR")), all)
		},
		"Java": func(t *testing.T, all []carried) []map[string]string {
			return readWith(t, broker(t).Java("testdata/SDK.java"), all)
		},
	}
	e := sinktest.NewEvent("web", 1, 100)
	e.Name, e.Manager = "zoë-"+`"%`, `Zoë's "tool" 100% %41 \`
	want := map[string]string{}
	e.Each(func(name, value string) { want[name] = value })
	delete(want, "time") // SDKs print it in forms of their own
	forms := []string{"HTTP, binary", "HTTP, structured", "Kafka, binary", "Kafka, structured"}
	sent := []carried{
		requestOf(t, e, sinks.Binary), requestOf(t, e, sinks.Structured),
		recordOf(t, e, sinks.Binary), recordOf(t, e, sinks.Structured),
	}
	for name, read := range sdks {
		t.Run(name, func(t *testing.T) {
			for i, got := range read(t, sent) {
				delete(got, "time")
				right := maps.Equal(got, want)
				if shouldRead := i > 0 || name == "Python"; right != shouldRead {
					t.Errorf("%s is read rightly: %t, want %t:\n%v\nof\n%v", forms[i], right, shouldRead, got, want)
				}
			}
		})
	}
}

func needed(t *testing.T, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Skipf("%s is not set: run make test-kafka", variable)
	}
	return value
}

// requestOf is the request that the HTTP sink sends.
func requestOf(t *testing.T, e *event.Event, encoding string) (sent carried) {
	t.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent = carried{Headers: map[string]string{}, Body: body}
		for name := range r.Header {
			sent.Headers[strings.ToLower(name)] = r.Header.Get(name)
		}
	}))
	defer endpoint.Close()
	s, err := bridgehttp.New(bridgehttp.Options{
		Config: testkit.WithDefaults(bridgehttp.Config{URL: settings.URL(endpoint.URL)}),
		Common: sinks.Common{Encoding: encoding},
	})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	m := &sinks.Message{Event: e}
	s.Publish(t.Context(), []*sinks.Message{m})
	must(t, m.Err)
	return sent
}

// recordOf is the record that Kafka has.
func recordOf(t *testing.T, e *event.Event, encoding string) carried {
	t.Helper()
	c, topic := broker(t), fmt.Sprintf("sdks%d", destinations.Add(1))
	publishAs(t, openSink(t, c, func(k *kafka.Options) { k.Topic, k.Encoding = topic, encoding }), e)
	r := readAll(t, c, topic)[0]
	sent := carried{Headers: map[string]string{}, Key: string(r.Key), Body: r.Value}
	for _, h := range r.Headers {
		if !bridgeOnly(h) {
			sent.Headers[h.Key] = string(h.Value)
		}
	}
	return sent
}

// bridgeOnly reports whether a header is none of CloudEvents.
func bridgeOnly(h kgo.RecordHeader) bool {
	return h.Key != "content-type" && !strings.HasPrefix(h.Key, "ce_")
}

// readWith gives messages to a program, a line of JSON each, and returns the lines that it prints.
func readWith(t *testing.T, cmd *exec.Cmd, all []carried) (read []map[string]string) {
	t.Helper()
	var lines bytes.Buffer
	for _, one := range all {
		must(t, json.NewEncoder(&lines).Encode(one))
	}
	cmd.Stdin = &lines
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr(err))
	}
	for line := range bytes.Lines(out) {
		attributes := map[string]string{}
		must(t, json.Unmarshal(line, &attributes))
		read = append(read, attributes)
	}
	if len(read) != len(all) {
		t.Fatalf("%d of %d messages were read", len(read), len(all))
	}
	return read
}

// readWithGo reads messages with the SDK for Go.
func readWithGo(t *testing.T, all []carried) (read []map[string]string) {
	t.Helper()
	for _, one := range all {
		var message binding.Message
		if one.Key == "" {
			header := http.Header{}
			for name, value := range one.Headers {
				header.Set(name, value)
			}
			message = cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(one.Body)))
		} else {
			headers := map[string][]byte{}
			for name, value := range one.Headers {
				headers[name] = []byte(value)
			}
			message = kafka_sarama.NewMessage(one.Body, one.Headers["content-type"], headers)
		}
		e, err := binding.ToEvent(t.Context(), message)
		must(t, err)
		read = append(read, attributesOf(t, e))
	}
	return read
}

// attributesOf is what the SDK for Go has read.
func attributesOf(t *testing.T, e *ce.Event) map[string]string {
	t.Helper()
	attributes := map[string]string{
		"specversion": e.SpecVersion(), "id": e.ID(), "source": e.Source(), "type": e.Type(),
		"subject": e.Subject(), "datacontenttype": e.DataContentType(),
	}
	for name, value := range e.Extensions() {
		text, err := types.Format(value)
		must(t, err)
		attributes[name] = text
	}
	return attributes
}
