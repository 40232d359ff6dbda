package http_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// versions of each of 40 objects are published, all objects once a second.
const versions = 20

// batches is a receiver of batches that notes them: the names with versions of each request. It
// takes 50 ms.
type batches struct {
	t      *testing.T
	answer func(names []string) (status int) // 0: none

	mu       sync.Mutex
	requests [][]string               // guarded by mu
	taken    [][]string               // guarded by mu: those that were answered with 204
	settled  map[string]string        // guarded by mu: how, by name with version
	took     map[string]time.Duration // guarded by mu: until it was settled
}

func (b *batches) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	if r.Method != nethttp.MethodPost {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Error(err)
	}
	all, err := parseAll(r.Header, body)
	if err != nil || len(all) == 0 || r.Header.Get("Content-Type") != "application/cloudevents-batch+json" {
		b.t.Errorf("%s of %d events: %v", r.Header.Get("Content-Type"), len(all), err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	b.requireSDK(r, all)
	var names []string
	for _, one := range all {
		names = append(names, one.Attributes["name"]+"/"+one.Attributes["resourceversion"])
	}
	time.Sleep(50 * time.Millisecond)
	status := b.answer(names)
	b.mu.Lock()
	b.requests = append(b.requests, names)
	if status == 204 {
		b.taken = append(b.taken, names)
	}
	b.mu.Unlock()
	if status == 0 {
		<-r.Context().Done()
		return
	}
	w.WriteHeader(status)
}

// requireSDK checks that the SDK of CloudEvents reads the same events.
func (b *batches) requireSDK(r *nethttp.Request, all []sinktest.Received) {
	events, err := cehttp.NewEventsFromHTTPRequest(r)
	if err != nil || len(events) != len(all) {
		b.t.Errorf("the SDK reads %d of %d events: %v", len(events), len(all), err)
		return
	}
	for i := range events {
		e, want := &events[i], &all[i]
		if err := e.Validate(); err != nil || e.ID() != want.Attributes["id"] || !bytes.Equal(e.Data(), want.Data) {
			b.t.Errorf("the SDK reads %v of %v: %v", e, want, err)
		}
	}
}

func (b *batches) Settle(items []*publisher.Item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, it := range items {
		e := it.Message.Event
		b.settled[e.Name+"/"+e.ResourceVersion] = fmt.Sprint(it.Outcome())
		b.took[e.Name+"/"+e.ResourceVersion] = time.Since(e.Observed)
	}
}

// publishBatches publishes versions of 40 objects, in batches of ten, to a receiver that answers
// so.
func publishBatches(t *testing.T, answer func(names []string) (status int)) *batches {
	t.Helper()
	b := &batches{t: t, answer: answer, settled: map[string]string{}, took: map[string]time.Duration{}}
	n := newNetwork(t)
	n.serve("a.test:80", b.ServeHTTP)
	p, err := publisher.New(publisher.Config{Name: "http", Sink: n.sink(http.Options{
		Config: http.Config{Batch: 10, Concurrency: 2}, Common: sinks.Common{Encoding: sinks.Structured},
	})})
	testkit.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { testkit.OK(t, p.Run(ctx)) })
	for version := 1; version <= versions; version++ {
		var items []*publisher.Item
		for i := range 40 {
			e := sinktest.NewEvent(fmt.Sprint("web-", i), version, 300)
			e.Observed = time.Now()
			items = append(items, &publisher.Item{Message: sinks.Message{Event: e}, Settler: b})
		}
		testkit.OK(t, p.Add(t.Context(), items))
		time.Sleep(time.Second)
	}
	time.Sleep(time.Minute)
	cancel()
	running.Wait()
	time.Sleep(time.Minute) // handlers that are late end
	synctest.Wait()
	return b
}

// requireOthers checks that all versions of all but an object were taken in order, and those of a
// version from on in time.
func (b *batches) requireOthers(t *testing.T, other string, from int, most time.Duration) {
	t.Helper()
	order := slices.Concat(b.taken...)
	for i := range 40 {
		name := fmt.Sprint("web-", i)
		if name == other {
			continue
		}
		var got, want []string
		for _, one := range order {
			if strings.HasPrefix(one, name+"/") {
				got = append(got, one)
			}
		}
		for version := 1; version <= versions; version++ {
			one := fmt.Sprintf("%s/%d", name, version)
			want = append(want, one)
			if b.settled[one] != "acknowledged" || version >= from && b.took[one] > most {
				t.Errorf("%s: %q after %v", one, b.settled[one], b.took[one])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s was taken as %v", name, got)
		}
	}
}

// company returns how many requests had an event and others.
func company(requests [][]string, event string) (n int) {
	for _, names := range requests {
		if len(names) > 1 && slices.Contains(names, event) {
			n++
		}
	}
	return n
}

func largest(requests [][]string) (most int) {
	for _, names := range requests {
		most = max(most, len(names))
	}
	return most
}

// failing answers a request with an event so, and others with 204.
func failing(event string, status int) func(names []string) int {
	return func(names []string) int {
		if slices.Contains(names, event) {
			return status
		}
		return 204
	}
}

func TestBatch(t *testing.T) {
	for name, test := range map[string]func(t *testing.T){
		"what gathers is sent together": func(t *testing.T) {
			b := publishBatches(t, func([]string) int { return 204 })
			b.requireOthers(t, "", 1, time.Second)
			if most := largest(b.requests); most != 10 || len(b.requests) > 8*versions {
				t.Errorf("%d requests, the largest of %d events", len(b.requests), most)
			}
		},
		"a refused event stops nothing": func(t *testing.T) {
			b := publishBatches(t, failing("web-7/2", 400))
			b.requireOthers(t, "web-7", 1, time.Second)
			if b.settled["web-7/2"] != "lost" {
				t.Errorf("it is %q", b.settled["web-7/2"])
			}
			again := 0
			for version := 1; version <= versions; version++ {
				one := fmt.Sprint("web-7/", version)
				if again += company(b.taken, one); version != 2 && b.settled[one] != "acknowledged" {
					t.Errorf("%s: %q", one, b.settled[one])
				}
			}
			if again < versions/4 {
				t.Errorf("the object was %d times in a batch", again)
			}
		},
		"an event that fails stops its object": func(t *testing.T) {
			b := publishBatches(t, failing("web-7/2", 500))
			b.requireOthers(t, "web-7", 1, time.Second)
			if n := company(b.requests, "web-7/2"); n > 1 || b.settled["web-7/2"]+b.settled["web-7/3"] != "" {
				t.Errorf("%q and %q, %d times with others", b.settled["web-7/2"], b.settled["web-7/3"], n)
			}
		},
		"an event without an answer stops others once": func(t *testing.T) {
			b := publishBatches(t, failing("web-7/2", 0))
			b.requireOthers(t, "web-7", versions-5, 2*time.Second)
			b.requireOthers(t, "web-7", 1, 12*time.Second)
			if n := company(b.requests, "web-7/2"); n > 1 {
				t.Errorf("%d times with others", n)
			}
		},
		"413 makes requests smaller": func(t *testing.T) {
			b := publishBatches(t, func(names []string) int {
				if len(names) > 3 {
					return 413
				}
				return 204
			})
			b.requireOthers(t, "", 1, 2*time.Second)
			if most := largest(b.taken); most < 2 || most > 3 {
				t.Errorf("the largest request had %d events", most)
			}
		},
		"429 is about no event": func(t *testing.T) {
			began := time.Now()
			b := publishBatches(t, func([]string) int {
				if time.Since(began) < 5*time.Second {
					return 429
				}
				return 204
			})
			b.requireOthers(t, "", 1, time.Minute)
			refused, alone := len(b.requests)-len(b.taken), 0
			for _, names := range b.requests[:refused] {
				if len(names) == 1 {
					alone++
				}
			}
			if alone > refused*9/10 {
				t.Errorf("%d of %d requests with the answer 429 had one event", alone, refused)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// TestFlatBatch: a request holds flat records, as one list; an event alone is in one too.
func TestFlatBatch(t *testing.T) {
	for _, batch := range []int{0, 10} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			var mediaType string
			var body []byte
			server := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
				mediaType = r.Header.Get("Content-Type")
				body, _ = io.ReadAll(r.Body)
			}))
			defer server.Close()
			s := newSink(t, http.Options{
				Config: http.Config{URL: settings.URL(server.URL), DeadLetterURL: settings.URL(server.URL), Batch: batch},
				Common: sinks.Common{Encoding: sinks.Flat},
			})
			defer func() { testkit.OK(t, s.Close()) }()
			requireRecord := func(id string) event.Event {
				t.Helper()
				text := body
				if batch > 0 {
					text = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte("[")), []byte("]"))
				}
				e, err := new(event.Message).ReadDocument(text).Decode()
				if err != nil || e.ID != id || mediaType != event.FlatContentType || (batch > 0) != (len(text) < len(body)) {
					t.Fatalf("%s of %s: %v", body, mediaType, err)
				}
				return e
			}
			testkit.OK(t, publish(t, s))
			requireRecord(sinktest.NewEvent("web", 1, 300).ID)
			refused := sinktest.NewEvent("api", 2, 300)
			testkit.OK(t, s.DeadLetter(t.Context(), refused, errors.New("no, \"ü\""), 3))
			letter := requireRecord(refused.ID)
			for _, want := range []event.Attribute{
				{Name: "deadletterreason", Value: `no, "ü"`},
				{Name: "deadletterattempts", Value: "3"},
				{Name: "deadletterurl", Value: server.URL},
			} {
				if !slices.Contains(letter.Extensions, want) {
					t.Errorf("the dead letter has no %v: %s", want, body)
				}
			}
			if !bytes.Equal(letter.Data, refused.Data) {
				t.Errorf("the dead letter has the data %s, want %s", letter.Data, refused.Data)
			}
		})
	}
}
