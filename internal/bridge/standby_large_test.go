package bridge_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/testkit"
)

// bulky is a session whose positions are too large to be reported, and can't be made smaller but by
// leaving all out that is not the place.
type bulky struct{ recaller }

func (b bulky) Position() []byte {
	position := b.recaller.Position()
	noise := rand.NewChaCha8([32]byte(bytes.Repeat(position[:1], 32)))
	padded := append(make([]byte, 0, 300<<10), position...)
	padded = padded[:cap(padded)]
	_, _ = noise.Read(padded[len(position):])
	return padded
}

// Outline implements sinks.Outliner.
func (b bulky) Outline(position []byte) []byte {
	place, _ := binary.Uvarint(position)
	return binary.AppendUvarint(nil, place)
}

// What a leader with large positions sent and did not report is not sent twice.
func TestTakeoverLargePositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		registry := prometheus.NewRegistry()
		p.cfg.Registerer = registry
		for i, r := range []*rig{p.rig, p.second} {
			r.cfg.Sinks, r.cfg.Units[0].Sinks = nil, nil
			r.addSink(p.broker.Name, bulky{recaller{p.sessions[i]}})
		}
		p.Create("shop/a", nil)
		p.start()
		p.second.start()
		p.Streams.Bookmark()
		p.inSync()
		time.Sleep(20 * time.Second)
		p.settle()
		if got := testkit.Metric(t, registry, "bridge_standby_progress_short"); got != 1 {
			t.Errorf("the progress that leaves something out is reported as %v", got)
		}
		p.Create("shop/b", nil) // is sent, and the leader dies before it says so
		p.settle()
		p.die()
		p.takesOver()
		p.Create("shop/c", nil)
		p.settle()
		expect(t, p.broker, "added a", "synced", "added b", "added c")
		p.endSecond()
	})
}
