package nats_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	natsclient "github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// A message is made in the memory of the one before, which had other headers.
func TestEncoderReuse(t *testing.T) {
	encode := nats.NewEncoder()
	for n := range 2000 {
		e := anEvent(n)
		encoding := []string{sinks.Binary, sinks.Binary, sinks.Binary, sinks.Structured}[rand.IntN(4)]
		want := natsclient.Header{"Nats-Msg-Id": {e.MessageID()}}
		if encoding == sinks.Structured {
			want["Content-Type"] = []string{event.StructuredContentType}
		} else {
			e.Each(func(name, value string) {
				want["ce-"+name] = []string{event.HeaderValue(value)}
			})
		}
		size := len("NATS/1.0\r\n\r\n")
		for name, values := range want {
			size += len(name) + len(": \r\n") + len(values[0])
		}
		if msg, header := encode(e, encoding); !reflect.DeepEqual(msg.Header, want) ||
			header != size {
			t.Fatalf("event %d, %s: %d bytes of headers, want %d\n%v\n%v", n, encoding, header,
				size, msg.Header, want)
		}
	}
}

// anEvent has some attributes or not, by chance.
func anEvent(n int) *event.Event {
	e := sinktest.NewEvent(fmt.Sprintf("web-%d", n), n, 10)
	e.Initial, e.Inferred = rand.IntN(4) == 0, rand.IntN(4) == 0
	for _, value := range []*string{&e.Manager, &e.Cause, &e.Namespace, &e.TraceParent} {
		*value = []string{"", fmt.Sprintf("%d %%", n)}[rand.IntN(2)]
	}
	for i := range rand.IntN(3) {
		e.Extensions = append(e.Extensions, event.Attribute{
			Name:  fmt.Sprintf("own%d", (i+n)%5),
			Value: fmt.Sprint(n),
		})
	}
	return e
}

// The writers of an object take turns, and each gives its changes other attributes.
func TestEncoderAllocations(t *testing.T) {
	byHand := sinktest.NewEvent("web", 1, 10)
	byHand.TimeSource, byHand.ManagerOperation = "managedfields", "Update"
	byHand.ManagerSubresource, byHand.Previous = "scale", "0"
	deleted := sinktest.NewEvent("web", 2, 10)
	deleted.TimeSource, deleted.Manager, deleted.LastManager = "observed", "", "kubectl-edit"
	deleted.Initial, deleted.Inferred, deleted.Cause = true, true, "sync"

	encode := nats.NewEncoder()
	allocations := func(a, b *event.Event) float64 {
		return testing.AllocsPerRun(100, func() {
			encode(a, sinks.Binary)
			encode(b, sinks.Binary)
		})
	}
	same := (allocations(byHand, byHand) + allocations(deleted, deleted)) / 2
	if got := allocations(byHand, deleted); got > same {
		t.Errorf("%v allocations for two that take turns, %v for the same two", got, same)
	}
}
