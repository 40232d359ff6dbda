package publisher_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// readableSink is a sink that holds messages of an earlier process.
type readableSink struct {
	*testkit.Session
	holds    []string      // MessageIDs
	position func() []byte // nil for always the same
	found    func(string)
}

func (s *readableSink) Position() []byte {
	if s.position != nil {
		return s.position()
	}
	return []byte{1}
}

func (s *readableSink) ReadBack(_ context.Context, _ []byte, found func(string)) error {
	s.found = found
	for _, id := range s.holds {
		found(id)
	}
	return nil
}

// What the sink holds is not sent again, unless it must be.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, r := &readableSink{Session: newSink(t, sinks.ByObject), holds: []string{"/a/1", "/b/2"}}, newRecorder(t)
		p := start(t, sink, publisher.Config{})
		items := r.items("a/1", "b/1", "b/2")
		for _, it := range items[1:] {
			it.Message.Event.Run = "/later" // an earlier process had skipped b/1
		}
		p.add(items)
		p.drain()
		if a, b := sink.Stored("a"), sink.Stored("b"); len(a) != 0 || !slices.Equal(b, []string{"b/1", "b/2"}) {
			t.Errorf("of a %q was sent, of b %q; want nothing of a, and all of b: it would end in an old state", a, b)
		}
	})
}

// A commit asks for the position while the sink is being closed, and what it says then means
// nothing.
func TestPositionAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := make(chan struct{}), make(chan struct{})
		var late atomic.Bool
		sink := &readableSink{Session: newSink(t, sinks.ByObject)}
		sink.position = func() []byte {
			if late.CompareAndSwap(true, false) {
				close(asked)
				<-answer
				return []byte("closed")
			}
			return []byte("last")
		}
		p := start(t, sink, publisher.Config{})
		synctest.Wait()
		late.Store(true)
		said := make(chan []byte, 1)
		go func() { said <- p.Position() }()
		<-asked
		p.stop()
		close(answer)
		if got := string(<-said); got != "last" {
			t.Errorf("the position is %q", got)
		}
		if got := string(p.Position()); got != "last" {
			t.Errorf("later it is %q", got)
		}
	})
}

// What is read back is part of the checkpoint for an hour.
func TestRecallInCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &readableSink{Session: newSink(t, sinks.ByObject), holds: []string{"/a/1"}}
		p := start(t, sink, publisher.Config{})
		synctest.Wait()
		kept := func(when string, want bool) {
			t.Helper()
			if got := len(p.ReadBackIDs()) > 0; got != want {
				t.Errorf("%s: kept %v, want %v", when, got, want)
			}
		}
		kept("at the start", true)
		time.Sleep(2 * time.Hour)
		kept("two hours later", false)
		sink.found("/a/2") // in a lane that was idle until now
		time.Sleep(time.Minute)
		kept("a minute after more was found", true)
		time.Sleep(2 * time.Hour)
		kept("two hours after that", false)
	})
}
