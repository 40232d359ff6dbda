package http_test

import (
	"cmp"
	"encoding/json"
	"io"
	"log"
	"net"
	nethttp "net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// tooLarge is a body that the receiver of the contract's test does not take.
const tooLarge = 100 << 10

func TestContract(t *testing.T) {
	const noIDs = "a receiver drops repeats by their ids"
	for _, encoding := range []string{sinks.Binary, sinks.Structured, "batched"} {
		t.Run(encoding, func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{
				TooLarge: tooLarge,
				Exempt: map[string]string{
					"stores a resent message once":                                      noIDs,
					"stores a message resent after a restart once":                      noIDs,
					"what a cancelled call has left open is stored once in other calls": noIDs,
					"names never meet": "all events go to one place",
				},
				Start: func(t *testing.T) *sinktest.Broker { return startReceiver(t, encoding) },
			})
		})
	}
}

// receiver stores what is posted to it. It can be stopped, and started at the same address.
type receiver struct {
	t       *testing.T
	address string
	handler nethttp.Handler // nil for the receiver itself

	mu     sync.Mutex
	stored []sinktest.Received // guarded by mu
	server *nethttp.Server     // guarded by mu
}

func startReceiver(t *testing.T, encoding string) *sinktest.Broker {
	r := &receiver{t: t, address: testkit.Address(t)}
	r.start()
	t.Cleanup(r.stop)
	batch := 0
	if encoding == "batched" {
		encoding, batch = sinks.Structured, 50
	}
	return &sinktest.Broker{
		NewSink: func(t *testing.T) sinks.Sink {
			return newSink(t, http.Options{
				Config: http.Config{
					URL:           settings.URL("http://" + r.address + "/events"),
					DeadLetterURL: settings.URL("http://" + r.address + "/dead"),
					Timeout:       2 * time.Second,
					Batch:         batch,
				},
				Common: sinks.Common{Encoding: encoding},
			})
		},
		Read:    r.read,
		Break:   r.stop,
		Restore: r.start,
	}
}

// newSink makes a sink with the defaults in the place of zero values.
func newSink(t *testing.T, cfg http.Options) *http.Sink {
	t.Helper()
	cfg.Config, cfg.Encoding = testkit.WithDefaults(cfg.Config), cmp.Or(cfg.Encoding, sinks.Binary)
	s, err := http.New(cfg)
	testkit.OK(t, err)
	return s
}

func (r *receiver) start() {
	listener, err := new(net.ListenConfig).Listen(r.t.Context(), "tcp", r.address)
	if err != nil {
		r.t.Error(err)
		return
	}
	handler := r.handler
	if handler == nil {
		handler = r
	}
	server := &nethttp.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	r.mu.Lock()
	r.server = server
	r.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

func (r *receiver) stop() {
	r.mu.Lock()
	server := r.server
	r.mu.Unlock()
	_ = server.Close()
}

func (r *receiver) ServeHTTP(w nethttp.ResponseWriter, request *nethttp.Request) {
	if request.Method != nethttp.MethodPost {
		w.WriteHeader(nethttp.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(nethttp.MaxBytesReader(w, request.Body, tooLarge-1))
	if err != nil {
		w.WriteHeader(nethttp.StatusRequestEntityTooLarge)
		return
	}
	all, err := parseAll(request.Header, body)
	if err != nil {
		r.t.Error(err)
		w.WriteHeader(nethttp.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, got := range all {
		got.Destination, got.Key = request.URL.Path, got.Attributes["partitionkey"]
		r.stored = append(r.stored, got)
	}
}

// parseAll reads the events of a request, of a batch or of one.
func parseAll(header nethttp.Header, body []byte) (all []sinktest.Received, err error) {
	if header.Get("Content-Type") != "application/cloudevents-batch+json" {
		got, err := parse(header, body)
		return []sinktest.Received{got}, err
	}
	var documents []json.RawMessage
	if err := json.Unmarshal(body, &documents); err != nil {
		return nil, err
	}
	for _, document := range documents {
		got, err := sinktest.ParseStructured(document)
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

// parse reads a request as CloudEvents' binding of HTTP says: the SDK does not decode headers.
func parse(header nethttp.Header, body []byte) (sinktest.Received, error) {
	if strings.HasPrefix(header.Get("Content-Type"), "application/cloudevents+json") {
		return sinktest.ParseStructured(body)
	}
	attributes := map[string]string{}
	for name := range header {
		if attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
			attributes[attribute] = decoded(header.Get(name))
		}
	}
	if contentType := header.Get("Content-Type"); contentType != "" {
		attributes["datacontenttype"] = contentType
	}
	return sinktest.ParseBinary(attributes, body)
}

func (r *receiver) read(t *testing.T, n int) []sinktest.Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stored) < n {
		t.Fatalf("%d events were received, want %d", len(r.stored), n)
	}
	return append([]sinktest.Received(nil), r.stored...)
}
