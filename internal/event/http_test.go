package event_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/testkit"
)

// requestText is a request as it is on the wire.
func requestText(method, body string, headers ...string) string {
	return fmt.Sprintf("%s /someresource HTTP/1.1\r\nHost: example.com\r\n%s\r\nContent-Length: %d\r\n\r\n%s",
		method, strings.Join(headers, "\r\n"), len(body), body)
}

// binaryRequest writes attributes as the examples of the HTTP binding do.
func binaryRequest(attributes map[string]string, data string) string {
	var headers []string
	for name, value := range attributes {
		if name = "ce-" + name; name == "ce-datacontenttype" {
			name = "Content-Type"
		}
		headers = append(headers, name+": "+value)
	}
	return requestText("POST", data, headers...)
}

// specifiedRequest is a case of the HTTP binding.
func specifiedRequest(name, request string, want map[string]string) specified {
	return specified{name: "HTTP, " + name, message: messageOf(request), want: want, data: someData, request: request}
}

func parseRequest(text string) (r *nethttp.Request, body []byte) {
	r, err := nethttp.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err == nil {
		body, err = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if err != nil {
		panic(err)
	}
	return r, body
}

// messageOf has the bridge read a request, as far as it can: a body is a document, and headers are
// encoded as those of NATS.
func messageOf(request string) *event.Message {
	r, body := parseRequest(request)
	switch media := r.Header.Get("Content-Type"); {
	case strings.HasPrefix(media, "application/cloudevents-batch+json"):
		var documents []json.RawMessage
		if err := json.Unmarshal(body, &documents); err != nil || len(documents) != 1 {
			panic(fmt.Sprintf("a batch of %d: %v", len(documents), err))
		}
		body = documents[0]
		fallthrough
	case strings.HasPrefix(media, event.StructuredContentType):
		return new(event.Message).ReadDocument(body)
	default:
		if media != "" {
			r.Header.Set("ce-datacontenttype", media)
		}
		return new(event.Message).ReadNATS(r.Header, body)
	}
}

// sdkEvent has the SDK read a request that has one event, alone or in a batch.
func sdkEvent(r *nethttp.Request) (*cloudevents.Event, error) {
	if cehttp.NewMessageFromHttpRequest(r).ReadEncoding() != binding.EncodingBatch {
		e, err := cehttp.NewEventFromHTTPRequest(r)
		if err == nil {
			err = e.Validate()
		}
		return e, err
	}
	all, err := cehttp.NewEventsFromHTTPRequest(r)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("a batch of %d events", len(all))
	}
	return &all[0], all[0].Validate()
}

// The requests of the specification are the same events for the SDK's binding of HTTP. The
// difference is in specified.sdk. TestSpecification reads them with the bridge.
func TestSpecifiedRequests(t *testing.T) {
	for _, c := range specifiedCases() {
		if c.request == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r, _ := parseRequest(c.request)
			e, err := sdkEvent(r)
			if err != nil {
				t.Fatal(err)
			}
			want := c.want
			if c.sdk != nil {
				want = c.sdk
			}
			requireEvent(t, e, want, c.data)
		})
	}
}

// poster posts events with the HTTP sink.
type poster struct {
	server   *httptest.Server
	requests chan *nethttp.Request
	sinks    map[string]sinks.Sink
}

func newPoster(t *testing.T) *poster {
	p := &poster{requests: make(chan *nethttp.Request, 1), sinks: map[string]sinks.Sink{}}
	p.server = httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.requests <- r
	}))
	t.Cleanup(p.server.Close)
	for form, cfg := range map[string]struct {
		encoding string
		batch    int
	}{
		"binary": {encoding: sinks.Binary}, "structured": {encoding: sinks.Structured}, "batched": {sinks.Structured, 10},
		"flat": {encoding: sinks.Flat}, "flat, batched": {sinks.Flat, 10},
	} {
		sink, err := http.New(http.Options{
			Config: testkit.WithDefaults(http.Config{URL: settings.URL(p.server.URL), Batch: cfg.batch}),
			Common: sinks.Common{Encoding: cfg.encoding},
		})
		testkit.OK(t, err)
		t.Cleanup(func() { testkit.OK(t, sink.Close()) })
		p.sinks[form] = sink
	}
	return p
}

// post returns the request that the sink makes of an event.
func (p *poster) post(t *testing.T, form string, e *event.Event) *nethttp.Request {
	t.Helper()
	m := &sinks.Message{Event: e}
	p.sinks[form].Publish(t.Context(), []*sinks.Message{m})
	testkit.OK(t, m.Err)
	return <-p.requests
}

// The HTTP sink posts each event that the bridge reads in a case of the specification, and some of
// the bridge's own. The SDK reads the same event, with two differences: it does not decode headers,
// and it wants a text in a document where the media type ends with +json (sdk-go#797). A flat
// record is no CloudEvent.
func TestPostedRequests(t *testing.T) {
	p := newPoster(t)
	events := map[string]*event.Event{
		"full": full(), "without data": full(), "a patch": full(),
		"a value that is encoded twice": full(),
	}
	events["without data"].Data = nil
	events["a patch"].Data, events["a patch"].DataType = []byte(`{"a" : null}`), event.MergePatchContentType
	events["a value that is encoded twice"].Name = "%25 %41"
	for _, c := range specifiedCases() {
		if e, err := c.message.Event(); err == nil {
			events[c.name] = &e
		}
	}
	for name, e := range events {
		t.Run(name, func(t *testing.T) {
			for form := range p.sinks {
				t.Run(form, func(t *testing.T) {
					got, err := sdkEvent(p.post(t, form, e))
					_, want := attributes(e)
					switch isText := strings.HasSuffix(want["datacontenttype"], "+json"); {
					case strings.HasPrefix(form, "flat"):
						if !errors.Is(err, binding.ErrUnknownEncoding) {
							t.Errorf("event %v, error %v", got, err)
						}
						return
					case form != "binary" && isText:
						requireText(t, got, err, e.Data)
						return
					case err != nil:
						t.Fatal(err)
					case form == "binary":
						for name, value := range want {
							if name != "datacontenttype" {
								want[name] = event.HeaderValue(value)
							}
						}
					}
					requireEvent(t, got, want, string(e.Data))
				})
			}
		})
	}
}

// requireText checks that the SDK takes data for a text, or refuses it where it is none.
func requireText(t *testing.T, got *cloudevents.Event, err error, data []byte) {
	t.Helper()
	var text string
	if json.Unmarshal(data, &text) == nil {
		if err != nil || string(got.Data()) != text {
			t.Errorf("event %v, error %v", got, err)
		}
		return
	}
	if err == nil {
		t.Errorf("the SDK reads %v: sdk-go#797 is fixed, and this difference is none any more", got)
	}
}

// A request that is no event for the bridge is none for the SDK either, but for those whose
// difference is named.
func TestNoEventOfHTTP(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		sdk     string // what the SDK does otherwise
	}{
		"no specversion":                       {request: binaryRequest(with(someEvent, "specversion", ""), someData)},
		"no id":                                {request: binaryRequest(with(someEvent, "id", ""), someData)},
		"no source":                            {request: binaryRequest(with(someEvent, "source", ""), someData)},
		"no type":                              {request: binaryRequest(with(someEvent, "type", ""), someData)},
		"a time that is none":                  {request: binaryRequest(with(someEvent, "time", "now"), someData)},
		"a name that is none":                  {request: binaryRequest(with(someEvent, "my-team", "a"), someData)},
		"another format":                       {request: requestText("POST", "<event/>", "Content-Type: application/cloudevents+xml")},
		"a document without id":                {request: requestText("POST", `{"specversion":"1.0","source":"s","type":"t"}`, "Content-Type: application/cloudevents+json")},
		"a document in a batch without id":     {request: requestText("POST", `[{"specversion":"1.0","source":"s","type":"t"}]`, "Content-Type: application/cloudevents-batch+json")},
		"another version":                      {binaryRequest(with(someEvent, "specversion", "0.3"), someData), "it reads CloudEvents 0.3"},
		"percent-encoding of an overlong byte": {binaryRequest(with(someEvent, "subject", "%C0%A0"), someData), "it does not decode headers"},
		"percent-encoding that is none":        {binaryRequest(with(someEvent, "subject", "%zz"), someData), "it does not decode headers"},
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := messageOf(c.request).Event(); err == nil {
				t.Errorf("the bridge reads %+v", e)
			}
			r, _ := parseRequest(c.request)
			if e, err := sdkEvent(r); (err == nil) != (c.sdk != "") {
				t.Errorf("the SDK reads %v, %v; difference: %q", e, err, c.sdk)
			}
		})
	}
}
