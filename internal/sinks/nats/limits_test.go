package nats_test

import (
	"errors"
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

// largest finds the largest payload that is not refused, and that it is stored and nothing broke on
// the way.
func largest(t *testing.T, sink sinks.Sink, below int) int {
	t.Helper()
	low, high := 0, below
	for version := 1; high-low > 1; version++ {
		size := (low + high) / 2
		e := sinktest.NewEvent("a", version, 300)
		e.ID = "same-length" // headers must not grow while the size is searched
		e.Data = []byte(`"` + strings.Repeat("x", size-2) + `"`)
		// another Nats-Msg-Id of the same length
		e.Informer = string(rune('a'+version%26)) + string(rune('a'+version/26))
		e.ResourceVersion, e.Sequence = "1", "1"
		switch err := call(t, sink, e)[0].Err; {
		case err == nil:
			low = size
		case sinks.Classify(err) == sinks.Refused && errors.Is(err, nats.ErrTooLarge):
			high = size
		default:
			t.Fatalf("%d bytes: %v, want stored or ErrTooLarge", size, err)
		}
	}
	return low
}

// A payload above max_payload makes the server close the connection, one byte below is fine: the
// check has to be exact.
func TestServerLimit(t *testing.T) {
	ts := newTestServer(t, func(o *server.Options) { o.MaxPayload = 20_000 })
	size := largest(t, ts.openSink(), 30_000)
	stored := storedMessages(t, ts.jetStream(), "K8S")
	for _, m := range stored {
		if len(m.Data) == size {
			headers := len("NATS/1.0\r\n\r\n")
			for name, values := range m.Header {
				if strings.HasPrefix(name, "Nats-") && name != "Nats-Msg-Id" {
					continue // added by the server for the reader
				}
				headers += len(name) + len(values[0]) + 4
			}
			if headers+size != 20_000 {
				t.Errorf("the largest message has %d bytes with headers, max_payload is 20000",
					headers+size)
			}
			return
		}
	}
	t.Errorf("no message of %d bytes is stored", size)
}

func TestStreamLimit(t *testing.T) {
	ts := newTestServer(t)
	small := jetstream.StreamConfig{
		Name: "K8S", Subjects: []string{"k8s.test.>"},
		Duplicates: 2 * time.Minute, MaxMsgSize: 10_000,
	}
	if _, err := ts.jetStream().CreateStream(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	size := largest(t, ts.openSink(), 20_000)
	if size < 9_000 || size > 9_700 {
		t.Errorf("at most %d bytes of data were stored, want a little below 10000", size)
	}
	// Without the API the limit is not known beforehand: the refusal shows it.
	sink, large := ts.openSink(unmanaged), sinktest.NewEvent("b", 1, 12_000)
	err := call(t, sink, large)[0].Err
	wantClass(t, err, sinks.Retry)
	wantMentions(t, err, "exceeds maximum")
	if err := sink.Fits(large); !errors.Is(err, nats.ErrTooLarge) {
		t.Errorf("behind the refusal Fits says %v", err)
	}
	wantClass(t, call(t, sink, large)[0].Err, sinks.Refused)
	if err := sink.DeadLetter(t.Context(), sinktest.NewEvent("b", 2, 12_000), err, 1); err != nil {
		t.Errorf("the dead letter: %v", err)
	}
}

// TestDeadLetterLimit has streams that nothing is known of: what that of the events refuses, that
// of the dead letters may take, and the other way round.
func TestDeadLetterLimit(t *testing.T) {
	ts := newTestServer(t)
	for name, most := range map[string]int32{"K8S": 300, "DEAD": 4_000} {
		stream := jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name) + ".>"}, MaxMsgSize: most}
		if _, err := ts.jetStream().CreateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	sink := ts.openSink(unmanaged, func(c *nats.Options) { c.DeadLetterSubject = "dead.{resource}" })
	small, large := sinktest.NewEvent("a", 1, 10), sinktest.NewEvent("b", 1, 12_000)
	if err := sink.DeadLetter(t.Context(), large, errors.New("refused"), 1); err != nil {
		t.Errorf("the dead letter of a large event: %v", err)
	}
	if err := sink.Fits(large); err != nil {
		t.Errorf("a refused letter is taken for a limit of events: %v", err)
	}
	err := call(t, sink, small)[0].Err
	wantClass(t, err, sinks.Retry) // and with it a limit of events is known
	letter := sinktest.NewEvent("a", 1, 1_000)
	if err := sink.DeadLetter(t.Context(), letter, err, 1); err != nil {
		t.Errorf("the dead letter: %v", err)
	}
	stored, err := ts.jetStream().Stream(t.Context(), "DEAD")
	if err != nil {
		t.Fatal(err)
	}
	last, err := stored.GetMsg(t.Context(), stored.CachedInfo().State.LastSeq)
	if err != nil || len(last.Data) != len(letter.Data) {
		t.Errorf("the letter has %d bytes of data, want %d: %v", len(last.Data), len(letter.Data), err)
	}
}

// Each of these would make the server close the connection, and the message that is resent after it
// the next one.
func TestPoison(t *testing.T) {
	for name, spoil := range map[string]func(*event.Event){
		"payload": func(e *event.Event) {
			e.Data = []byte(`"` + strings.Repeat("x", 2<<20) +
				`"`)
		},
		"subject":  func(e *event.Event) { e.Name = strings.Repeat("n", 5000) },
		"escaped":  func(e *event.Event) { e.Name = strings.Repeat("_", 1400) },
		"headers":  func(e *event.Event) { e.Manager = strings.Repeat("m", 70_000) },
		"percents": func(e *event.Event) { e.Manager = strings.Repeat("%", 25_000) },
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t)
			sink := ts.openSink()
			poison := ev("poison", 1)
			spoil(poison)
			batch := call(t, sink, ev("a", 1), poison, ev("b", 1))
			wantClass(t, batch[1].Err, sinks.Refused)
			if !errors.Is(batch[1].Err, nats.ErrTooLarge) || batch[0].Err != nil ||
				batch[2].Err != nil {
				t.Errorf("answers: %v, %v, %v", batch[0].Err, batch[1].Err, batch[2].Err)
			}
		})
	}
}

func TestLongSubject(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink()
	for length := 4096; ; length-- {
		e := ev("a", length)
		e.Name = strings.Repeat("n", length)
		switch err := call(t, sink, e)[0].Err; {
		case err == nil:
			if length < 3800 {
				t.Errorf("the longest name that is stored has %d bytes", length)
			}
			return
		case !errors.Is(err, nats.ErrTooLarge):
			t.Fatalf("name of %d bytes: %v", length, err)
		}
	}
}

func TestNoDeadLetterSubject(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(func(c *nats.Options) { c.DeadLetterSubject = nats.NoDeadLetter })
	if err := sink.DeadLetter(t.Context(), ev("a", 1), errTest, 1); !errors.Is(err,
		sinks.ErrNoDeadLetter) {
		t.Errorf("got %v", err)
	}
}

func TestDeadLetter(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink()
	mustStore(t, sink, ev("a", 1)) // a dead letter of the same event is no duplicate of it
	for range 2 {
		if err := sink.DeadLetter(t.Context(), ev("a", 1), errTest, 4); err != nil {
			t.Fatal(err)
		}
	}
	stored := storedMessages(t, ts.jetStream(), "K8S")
	if len(stored) != 2 {
		t.Fatalf("%d messages, want the event and one dead letter", len(stored))
	}
	got := parse(t, stored[1].Subject, stored[1].Header, stored[1].Data)
	if got.Attributes["deadlettersubject"] != stored[0].Subject {
		t.Errorf("deadlettersubject %q, want %q", got.Attributes["deadlettersubject"],
			stored[0].Subject)
	}
}

func TestLongDeadLetterReason(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink()
	if err := sink.DeadLetter(t.Context(), ev("a", 1), errors.New(strings.Repeat("Ω\n", 100_000)),
		4); err != nil {
		t.Fatal(err)
	}
}
