package stdout_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
)

// lines is a writer whose end may break or fill up: it takes room more bytes and then answers err.
type lines struct {
	mu   sync.Mutex // guards what follows
	buf  bytes.Buffer
	err  error
	room int
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return l.buf.Write(p)
	}
	taken := min(l.room, len(p))
	l.room -= taken
	l.buf.Write(p[:taken])
	if taken < len(p) {
		return taken, l.err
	}
	return taken, nil
}

func (l *lines) fail(err error, room int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.room = err, room
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newSink(t *testing.T, out io.Writer, format string) *stdout.Sink {
	t.Helper()
	sink, err := stdout.New(out, format)
	if err != nil {
		t.Fatal(err)
	}
	return sink
}

func publish(sink sinks.Sink, events ...*event.Event) []*sinks.Message {
	batch := make([]*sinks.Message, len(events))
	for i, e := range events {
		batch[i] = &sinks.Message{Event: e}
	}
	sink.Publish(context.Background(), batch)
	return batch
}

// The stdout sink keeps the contract of a sink.
func TestContract(t *testing.T) {
	const noIDs = "a stream of lines has no ids: readers remove duplicates"
	sinktest.Run(t, sinktest.Harness{
		TooLarge: 1 << 20,
		Exempt: map[string]string{
			"stores a resent message once":                                      noIDs,
			"what a cancelled call has left open is stored once in other calls": noIDs,
			"stores a message resent after a restart once":                      noIDs,
			"refuses what is too large and stores the rest of the call":         "no line is too long",
			"a dead letter that is too large arrives without its data":          "no line is too long",
			"opens once the broker is back":                                     "nothing is opened",
			"names never meet":                                                  "all events go to one place",
		},
		Start: func(t *testing.T) *sinktest.Broker {
			out := &lines{}
			return &sinktest.Broker{
				NewSink: func(t *testing.T) sinks.Sink { return newSink(t, out, stdout.Auto) },
				Read:    func(t *testing.T, n int) []sinktest.Received { return readLines(t, out.String(), n) },
				Break:   func() { out.fail(syscall.ENOSPC, 100) }, // tears a line
				Restore: func() { out.fail(nil, 0) },
			}
		},
	})
}

func readLines(t *testing.T, text string, n int) (all []sinktest.Received) {
	t.Helper()
	for line := range strings.Lines(text) {
		r, err := sinktest.ParseStructured([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		r.Destination = "stdout"
		all = append(all, r)
	}
	if len(all) < n {
		t.Fatalf("%d lines, want %d", len(all), n)
	}
	return all
}

// An event is one line, whatever its payload is.
func TestOneLine(t *testing.T) {
	out := &lines{}
	e := sinktest.NewEvent("web", 1, 300)
	e.Data = []byte("{\r\n  \"a\": \"b\\nc\"\n}\n")
	publish(newSink(t, out, stdout.Auto), e)
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Fatalf("%d lines", n)
	}
	if got := string(readLines(t, out.String(), 1)[0].Data); strings.TrimSpace(got) != `{    "a": "b\nc" }` {
		t.Errorf("data %q", got)
	}
}

// A torn line is completed, and not repeated.
func TestTornLine(t *testing.T) {
	first, second, third := sinktest.NewEvent("a", 1, 300), sinktest.NewEvent("b", 1, 300), sinktest.NewEvent("c", 1, 300)
	whole := &lines{}
	publish(newSink(t, whole, stdout.Auto), first, second, third)
	for room := range len(whole.String()) { // torn anywhere, between lines too
		out := &lines{}
		sink := newSink(t, out, stdout.Auto)
		out.fail(syscall.ENOSPC, room)
		unsent := unacknowledged(t, publish(sink, first, second, third))
		if want := strings.Count(whole.String()[room:], "\n"); len(unsent) != want {
			t.Fatalf("room %d: %d messages unacknowledged, want %d", room, len(unsent), want)
		}
		out.fail(syscall.ENOSPC, 5) // and torn once more while it is completed
		unsent = unacknowledged(t, publish(sink, unsent...))
		out.fail(nil, 0)
		publish(sink, unsent...)
		if out.String() != whole.String() {
			t.Fatalf("room %d:\n got %q\nwant %q", room, out.String(), whole.String())
		}
	}
}

// unacknowledged are the events to resend. It fails t when one before them was not acknowledged and
// a later one was.
func unacknowledged(t *testing.T, batch []*sinks.Message) (events []*event.Event) {
	t.Helper()
	for _, m := range batch {
		if m.Err != nil {
			events = append(events, m.Event)
		} else if len(events) > 0 {
			t.Fatalf("%s was acknowledged after %s was not", m.Event.ID, events[0].ID)
		}
	}
	return events
}

// A torn line is completed before a dead letter.
func TestTornLineDeadLetter(t *testing.T) {
	out := &lines{}
	sink := newSink(t, out, stdout.Auto)
	e := sinktest.NewEvent("a", 1, 300)
	out.fail(syscall.ENOSPC, 50)
	publish(sink, e)
	out.fail(nil, 0)
	if err := sink.DeadLetter(t.Context(), e, errors.New("gave up"), 3); err != nil {
		t.Fatal(err)
	}
	got := readLines(t, out.String(), 2)
	if got[0].Attributes["deadletterreason"] != "" || got[1].Attributes["deadletterreason"] != "gave up" {
		t.Errorf("got %q", out.String())
	}
}

// Errors of the writer are classified, and say what to do.
func TestWriterErrors(t *testing.T) {
	for _, c := range []struct {
		err   error
		class sinks.Class
		says  string
	}{
		{syscall.EPIPE, sinks.Reconnect, "restart"},
		{os.ErrClosed, sinks.Reconnect, "restart"},
		{syscall.ENOSPC, sinks.Retry, "make room"},
		{errors.New("odd"), sinks.Retry, "standard output"},
	} {
		out := &lines{}
		out.fail(c.err, 0)
		err := publish(newSink(t, out, stdout.Auto), sinktest.NewEvent("a", 1, 300))[0].Err
		if sinks.Classify(err) != c.class || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: got %v (%v), want %v and %q in it", c.err, err, sinks.Classify(err), c.class, c.says)
		}
	}
}

// A closed pipe is answered with Reconnect.
func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer w.Close()
	got := publish(newSink(t, w, stdout.Auto), sinktest.NewEvent("a", 1, 300))[0].Err
	if got == nil || sinks.Classify(got) != sinks.Reconnect {
		t.Errorf("got %v", got)
	}
}

// The short format is for people.
func TestShortFormat(t *testing.T) {
	e := sinktest.NewEvent("web", 7, 300)
	clock := e.Time.Local().Format("15:04:05.000")
	cluster := sinktest.NewEvent("node-1", 8, 300)
	cluster.Namespace, cluster.Group, cluster.Resource, cluster.Op, cluster.Manager = "", "", "nodes", event.Deleted, ""
	cluster.Inferred, cluster.Cause = true, "left-selector"
	nasty := sinktest.NewEvent("web\x1b[2J\r\n", 9, 300)
	gap := &event.Event{Time: e.Time, Op: event.Gap, Informer: "workloads", Data: []byte(`{"reason":"expired"}`)}
	for _, c := range []struct {
		name string
		e    *event.Event
		want string
	}{
		{"an update", e, clock + " updated deployments.apps shop/web by kubectl-edit @7\n"},
		{"a cluster-scoped object", cluster, clock + " deleted nodes node-1 @8 inferred left-selector\n"},
		{"control characters are not obeyed", nasty, clock + " updated deployments.apps shop/web?[2J?? by kubectl-edit @9\n"},
		{"an event about an informer", gap, clock + " gap     informer workloads {\"reason\":\"expired\"}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := &lines{}
			publish(newSink(t, out, stdout.Short), c.e)
			if out.String() != c.want {
				t.Errorf("got %q\nwant %q", out.String(), c.want)
			}
		})
	}
}

// A flat line is a record, also of a payload with line breaks.
func TestFlatFormat(t *testing.T) {
	out := &lines{}
	e := sinktest.NewEvent("web", 7, 300)
	e.Data = []byte("{\n\"a\":\r1}")
	publish(newSink(t, out, stdout.Flat), e)
	got, err := new(event.Message).ReadDocument([]byte(out.String())).Decode()
	if err != nil || string(got.Data) != string(e.Data) || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q is %+v, %v", out.String(), got, err)
	}
}

// A dead letter on a terminal reports its reason.
func TestTerminalDeadLetter(t *testing.T) {
	out := &lines{}
	sink := newSink(t, out, stdout.Short)
	if err := sink.DeadLetter(t.Context(), sinktest.NewEvent("web", 7, 300), errors.New("too\nlarge"), 3); err != nil {
		t.Fatal(err)
	}
	if want := "deadletterreason=too?large deadletterattempts=3\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %q, want %q at its end", out.String(), want)
	}
}

// An unknown format is refused.
func TestUnknownFormat(t *testing.T) {
	if _, err := stdout.New(io.Discard, "xml"); err == nil || !strings.Contains(err.Error(), "auto, json, flat, short") {
		t.Errorf("got %v", err)
	}
}

// The operation is coloured on a terminal.
func TestTerminalColours(t *testing.T) {
	e := sinktest.NewEvent("web", 7, 300)
	for op, colour := range map[event.Op]string{event.Added: "32", event.Updated: "33", event.Deleted: "31"} {
		e.Op = op
		if want := "\x1b[" + colour + "m" + string(op); !strings.Contains(stdout.ColouredLine(e), want) {
			t.Errorf("%q has no %q", stdout.ColouredLine(e), want)
		}
	}
}
