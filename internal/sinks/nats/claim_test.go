package nats_test

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

func withBucket(c *nats.Options) { c.Objects.Bucket = "LARGE" }

// claimed reads what a dataref names, as a consumer would.
func claimed(t *testing.T, js jetstream.JetStream, dataref string) []byte {
	t.Helper()
	u, err := url.Parse(dataref)
	if err != nil || u.Scheme != "nats-object" {
		t.Fatalf("dataref %q: %v", dataref, err)
	}
	store, err := js.ObjectStore(t.Context(), u.Host)
	if err != nil {
		t.Fatal(err)
	}
	data, err := store.GetBytes(t.Context(), strings.TrimPrefix(u.Path, "/"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestClaim(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(withBucket)
	e := sinktest.NewEvent("web", 1, 3<<20)
	e.ID = "uid/1 %?#ü/sync/2"
	var dataref string
	for range 3 {
		var err error
		if dataref, err = sink.Claim(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if got := claimed(t, ts.jetStream(), dataref); !bytes.Equal(got, e.Data) {
		t.Errorf("%s holds %d bytes, want %d", dataref, len(got), len(e.Data))
	}
	stream, err := ts.jetStream().Stream(t.Context(), "OBJ_LARGE")
	if err != nil {
		t.Fatal(err)
	}
	info := stream.CachedInfo()
	if chunks := 3<<20>>17 + 1; info.State.LastSeq > uint64(chunks) {
		t.Errorf("%d messages were stored for one payload, want at most %d", info.State.LastSeq,
			chunks)
	}
	if info.Config.MaxAge != 168*time.Hour {
		t.Errorf("payloads are kept for %v, events for 168h", info.Config.MaxAge)
	}
}

func TestClaimWithoutBucket(t *testing.T) {
	ts := newTestServer(t)
	if _, err := ts.openSink().Claim(t.Context(), ev("a", 1)); !errors.Is(err, sinks.ErrNoClaims) {
		t.Errorf("got %v", err)
	}
}

func TestBucketCreation(t *testing.T) {
	ts := newTestServer(t)
	ts.openSink()
	err := ts.newSink(withBucket,
		func(c *nats.Options) { c.Stream.Manage = nats.Verify }).Open(t.Context())
	wantClass(t, err, sinks.Refused)
	wantMentions(t, err, "bucket LARGE does not exist", "manage: create")
}

func TestClaimWithoutServer(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(withBucket)
	ts.stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := sink.Claim(ctx, ev("a", 1))
	if class := sinks.Classify(err); err == nil || class != sinks.Retry &&
		class != sinks.Reconnect {
		t.Errorf("%v is %v", err, class)
	}
	ts.start()
	eventually(t, "claim", func() error {
		_, err := sink.Claim(t.Context(), ev("a", 1))
		return err
	})
}

// What Fits says is what Publish does, to the byte, in each encoding.
func TestFits(t *testing.T) {
	for _, encoding := range []string{sinks.Binary, sinks.Structured} {
		t.Run(encoding, func(t *testing.T) {
			ts := newTestServer(t, func(o *server.Options) { o.MaxPayload = 20_000 })
			sink := ts.openSink(func(c *nats.Options) { c.Encoding = encoding })
			fit, not := 0, 0
			for size := 18_000; size < 21_000; size += 37 {
				e := sinktest.NewEvent("web", size, size)
				said, done := sink.Fits(e), call(t, sink, e)[0].Err
				if (said == nil) != (done == nil) {
					t.Fatalf("%d bytes: Fits says %v, Publish %v", size, said, done)
				}
				if said == nil {
					fit++
				} else {
					not++
					wantClass(t, said, sinks.Refused)
				}
			}
			if fit == 0 || not == 0 {
				t.Errorf("%d fit, %d did not: this test has tested nothing", fit, not)
			}
		})
	}
}

func TestLargeDeadLetter(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink()
	for name, spoil := range map[string]func(*event.Event){
		"headers":  func(e *event.Event) { e.Manager = strings.Repeat("m", 70_000) },
		"percents": func(e *event.Event) { e.Manager = strings.Repeat("Ω", 25_000) },
		"name":     func(e *event.Event) { e.Name = strings.Repeat("n", 100_000) },
		"id":       func(e *event.Event) { e.ID = strings.Repeat("n", 100_000) },
	} {
		t.Run(name, func(t *testing.T) {
			e := ev(name, 1)
			spoil(e)
			if err := sink.DeadLetter(t.Context(), e, errTest, 1); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
		if r := parse(t, m.Subject, m.Header, m.Data); r.Attributes["deadletterreason"] == "" ||
			r.Attributes["truncated"] != "true" {
			t.Errorf("%v", r.Attributes)
		}
	}
}
