package sinktest

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Noticed is how soon a sink that stores nothing says why, and what it has lost.
const Noticed = 20 * time.Second

// Edge is a publisher with a sink, at whose destination an administrator changes something. One
// goroutine calls its methods.
type Edge struct {
	TB        testing.TB
	Publisher *publisher.Publisher
	log       testkit.Buffer
	settled   chan string
}

// Logger is for the sink.
func (e *Edge) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(&e.log, nil)) }

// Start runs a publisher until the test ends, and returns when the sink is open.
func (e *Edge) Start(sink sinks.Sink, timeout time.Duration) {
	e.TB.Helper()
	e.settled = make(chan string, 100)
	var err error
	e.Publisher, err = publisher.New(publisher.Config{
		Sink: sink, Name: "edge", Log: e.Logger(), PublishTimeout: timeout,
		Oversize: []publisher.Oversize{publisher.Reference},
		Retry:    publisher.Retry{Initial: 10 * time.Millisecond, Max: time.Second},
	})
	testkit.OK(e.TB, err)
	ctx, cancel := context.WithCancel(e.TB.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Publisher.Run(ctx) }()
	e.TB.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			e.TB.Error(err)
		}
		if e.TB.Failed() {
			e.TB.Log(e.log.String())
		}
	})
	<-e.Publisher.Opened()
}

// Settle implements publisher.Settler.
func (e *Edge) Settle(items []*publisher.Item) {
	for _, it := range items {
		it.Hold.Release()
		e.settled <- it.Message.Event.Name + it.Message.Event.ResourceVersion + " " + string(it.Outcome())
	}
}

// Add publishes an event of an object.
func (e *Edge) Add(name string, version, bytes int) {
	e.TB.Helper()
	m := sinks.Message{Event: NewEvent(name, version, bytes)}
	testkit.OK(e.TB, e.Publisher.Add(e.TB.Context(), []*publisher.Item{{Message: m, Settler: e}}))
}

// Want waits until events, each a name with a version, are acknowledged in any order.
func (e *Edge) Want(within time.Duration, events ...string) {
	e.TB.Helper()
	left := map[string]bool{}
	for _, name := range events {
		left[name+" acknowledged"] = true
	}
	for late := time.After(within); len(left) > 0; {
		select {
		case got := <-e.settled:
			if !left[got] {
				e.TB.Errorf("got %q, want %v", got, events)
			}
			delete(left, got)
		case <-late:
			e.TB.Fatalf("not settled within %v: %v; %+v", within, left, e.Publisher.Status())
		}
	}
}

// Inspected waits until the sink has looked at its destination, as a publisher has it do every 5 s.
func (e *Edge) Inspected() { time.Sleep(6 * time.Second) }

// Says waits until the sink is not ready, and its status has the words.
func (e *Edge) Says(words ...string) {
	e.TB.Helper()
	e.within("it is blocked, "+strings.Join(words, ", "), func(s publisher.Status) bool {
		return (s.Blocked != "" || !s.Connected) && hasAll(cmp.Or(s.Blocked, s.LastError), words)
	})
}

// Logs waits until the log has the words.
func (e *Edge) Logs(words ...string) {
	e.TB.Helper()
	e.within("it logs "+strings.Join(words, ", "), func(publisher.Status) bool { return hasAll(e.log.String(), words) })
}

// IsWell waits until the status is good, and fails for a dead letter.
func (e *Edge) IsWell() {
	e.TB.Helper()
	e.within("the status is good", func(s publisher.Status) bool {
		return s.Connected && s.Blocked == "" && s.DeadLetters == 0
	})
}

func (e *Edge) within(what string, is func(publisher.Status) bool) {
	e.TB.Helper()
	for began := time.Now(); !is(e.Publisher.Status()); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > Noticed {
			e.TB.Errorf("not within %v: %s: %+v", Noticed, what, e.Publisher.Status())
			return
		}
	}
}

// hasAll reports whether a text has each of the words. Of "a|b" one is enough.
func hasAll(text string, words []string) bool {
	for _, word := range words {
		one := func(word string) bool { return strings.Contains(text, word) }
		if !slices.ContainsFunc(strings.Split(word, "|"), one) {
			return false
		}
	}
	return true
}
