package nats_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
)

// The time alone is made again for each message.
func TestAllocations(t *testing.T) {
	for _, encoding := range sinks.Encodings {
		encode := nats.NewEncodeLoop(encoding)
		e := sinktest.NewEvent("web", 1, 2<<10)
		if got := testing.AllocsPerRun(1000, func() { encode(e) }); got > 1 {
			t.Errorf("%s: %v allocations", encoding, got)
		}
	}
}
