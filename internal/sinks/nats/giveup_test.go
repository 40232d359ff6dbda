package nats_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// outcomes is a Settler that passes on how each item was settled.
type outcomes chan string

func (o outcomes) Settle(items []*publisher.Item) {
	for _, it := range items {
		o <- it.Message.Event.Name + it.Message.Event.ResourceVersion + " " + string(it.Outcome())
	}
}

// A stream that takes no further message of one object's subject stops that object only, until the
// message is given up.
func TestGiveUp(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.newSink(func(o *nats.Options) { o.Subject, o.DeadLetterSubject = "k8s.{name}", "dead.{name}.{op}" })
	p, err := publisher.New(publisher.Config{
		Sink: sink, Name: "nats", Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Retry: publisher.Retry{Initial: time.Millisecond, MaxAttempts: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	<-p.Opened()
	ts.updateStream("K8S", func(c *jetstream.StreamConfig) {
		c.Discard, c.DiscardNewPerSubject, c.MaxMsgsPerSubject = jetstream.DiscardNew, true, 1
	})
	settled := make(outcomes)
	add := func(name string, version int) {
		t.Helper()
		e := ev(name, version)
		if err := p.Add(t.Context(), []*publisher.Item{{Message: sinks.Message{Event: e}, Settler: settled}}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(outcome string) {
		t.Helper()
		select {
		case got := <-settled:
			if got != outcome {
				t.Errorf("got %q, want %q", got, outcome)
			}
		case <-time.After(patience):
			t.Fatalf("%s was not settled: %+v", outcome, p.Status())
		}
	}
	add("web", 1)
	want("web1 acknowledged")
	add("web", 2)
	want("web2 dead-letter")
	add("other", 1)
	want("other1 acknowledged")
	ts.updateStream("K8S", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 })
	add("web", 3)
	want("web3 acknowledged")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var all []string
	for _, m := range storedMessages(t, ts.jetStream(), "K8S") {
		reason, err := url.PathUnescape(m.Header.Get("ce-deadletterreason"))
		if err != nil {
			t.Error(err)
		}
		all = append(all, fmt.Sprintf("%s %s %s", m.Subject, m.Header.Get("ce-resourceversion"), reason))
	}
	text := strings.Join(all, "\n")
	if len(all) != 4 || !strings.Contains(text, "dead.web.updated 2 given up after 3 attempts in ") ||
		!strings.Contains(text, "maximum messages per subject exceeded") {
		t.Errorf("stored:\n%s", text)
	}
}
