package stdout_test

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
)

// held is a writer that nobody reads from until it is let go.
type held struct {
	out   io.Writer
	began chan struct{} // gets a token with each write
	let   chan struct{} // closed to let them go
}

func newHeld(out io.Writer) *held {
	return &held{out, make(chan struct{}, 10), make(chan struct{})}
}

func (h *held) Write(p []byte) (int, error) {
	h.began <- struct{}{}
	<-h.let
	return h.out.Write(p)
}

// publishUntil is a call that is given up when the writer holds what it was given.
func publishUntil(t *testing.T, sink sinks.Sink, began <-chan struct{}, events ...*event.Event) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	batch := make([]*sinks.Message, len(events))
	for i, e := range events {
		batch[i] = &sinks.Message{Event: e}
	}
	done := make(chan struct{})
	go func() {
		sink.Publish(ctx, batch)
		close(done)
	}()
	if began != nil {
		<-began
	}
	cancel()
	<-done
	for _, m := range batch {
		if m.Err == nil || sinks.Classify(m.Err) != sinks.Stopped {
			t.Errorf("%s: got %v, want that it was stopped", m.Event.ID, m.Err)
		}
	}
}

// A write that a call did not wait for is neither repeated nor mixed with others.
func TestAbandonedWrite(t *testing.T) {
	a, b, c := sinktest.NewEvent("a", 1, 300), sinktest.NewEvent("b", 1, 300), sinktest.NewEvent("c", 1, 300)
	whole := &lines{}
	publish(newSink(t, whole, stdout.Auto), a, b, c)
	for room := 0; room <= len(whole.String()); room += 7 { // how much is taken of what was left
		out := &lines{}
		out.fail(io.ErrShortWrite, room)
		h := newHeld(out)
		sink := newSink(t, h, stdout.Auto)
		publishUntil(t, sink, h.began, a, b)
		publishUntil(t, sink, nil, a, b) // the writer still holds it
		close(h.let)
		unsent := unacknowledged(t, publish(sink, a)) // as one worker tries after a pause
		out.fail(nil, 0)
		publish(sink, append(unsent, b, c)...)
		if out.String() != whole.String() {
			t.Fatalf("room %d:\n got %q\nwant %q", room, out.String(), whole.String())
		}
	}
}

// A reader that stops reading does not hold up the end.
func TestStalledReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	p, err := publisher.New(publisher.Config{Sink: newSink(t, w, stdout.Auto), Name: "out"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	const large = 1 << 20 // more than a pipe holds
	items := []*publisher.Item{{Message: sinks.Message{Event: sinktest.NewEvent("a", 1, large)}, Settler: nobody{}}}
	if err := p.Add(ctx, items); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 1000)); err != nil { // it is being written
		t.Fatal(err)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("Run does not end while nobody reads")
	}
}

type nobody struct{}

func (nobody) Settle([]*publisher.Item) {}
