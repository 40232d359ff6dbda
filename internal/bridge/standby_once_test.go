package bridge_test

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestSentOnce has a replica that takes over send nothing that is in the broker, however long ago
// it came there, and whatever the leader's progress could not say yet.
func TestSentOnce(t *testing.T) {
	run := func(name string, test func(t *testing.T, p *pair, disk *moody)) {
		for _, end := range []string{"dies", "stops"} {
			t.Run(name+", and the leader "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPair(t)
					disk := &moody{}
					p.wrap = disk.wrap
					p.start()
					p.second.start()
					p.Create("shop/a", nil)
					p.Streams.Bookmark()
					p.inSync()
					p.settle()
					expect(t, p.broker, "synced", "added a")
					test(t, p, disk)
					if end == "dies" {
						p.sessions[0].Kill()
						p.clients[0].Cut(true)
						disk.set(0) // it could not be closed
						p.die()
					} else {
						disk.set(0)
						p.settle()
						_, _ = p.end() // an event that is not sent is an error
					}
					p.broker.OnMessage = nil
					p.takesOver()
					for _, rec := range p.broker.Next() {
						if rec.Acked && rec.Name != "stuck" {
							t.Errorf("the successor sent %s", rec.ID)
						}
					}
					p.endSecond()
				})
			})
		}
	}
	// The version of the last change of a quiet resource is complete when a later one or a bookmark
	// comes, and none does.
	run("a resource is quiet", func(t *testing.T, p *pair, _ *moody) {
		p.Update("shop/a", nil)
		time.Sleep(10 * time.Second)
		expect(t, p.broker, "updated a")
		progress, _, err := p.cfg.Standby.ProgressLease.Get(t.Context())
		testkit.OK(t, err)
		var position uint64
		for _, at := range progress.Sinks { // there is one
			position, _ = binary.Uvarint(at)
		}
		if position != uint64(len(p.broker.Records())) {
			t.Errorf("a successor reads the broker from record %d, want the end", position)
		}
	})
	// The leader can't commit what the broker has, so its watermark stands still.
	run("the leader's disk is full", func(t *testing.T, p *pair, disk *moody) {
		p.broker.Set(testkit.Hung)
		p.Update("shop/a", nil)
		p.Create("shop/b", nil)
		p.settle()
		disk.set(syscall.ENOSPC)
		p.broker.Set(testkit.Healthy)
		time.Sleep(10 * time.Second)
		expect(t, p.broker, "added b", "updated a")
	})
	// The progress ends before what one object waits for, and others continue.
	run("one object waits", func(t *testing.T, p *pair, _ *moody) {
		var waits atomic.Bool
		waits.Store(true)
		p.broker.OnMessage = func(e *event.Event) (a testkit.Answer) {
			if e.Name == "stuck" && waits.Load() {
				a.Err = testkit.ErrBusy
			}
			return a
		}
		p.Create("shop/stuck", nil)
		var want []string
		for i := range 60 {
			p.Create(resource.Key(fmt.Sprint("shop/p", i)), nil)
			want = append(want, fmt.Sprint("added p", i))
			time.Sleep(time.Second)
		}
		p.Streams.Bookmark()
		time.Sleep(10 * time.Second)
		expect(t, p.broker, want...)
	})
}

// TestSinkReplacedUnopened has a sink that a reload replaces, before it was ever open, hand on from
// where the broker has to be read.
func TestSinkReplacedUnopened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.start()
		p.second.start()
		p.Create("shop/a", nil)
		p.Streams.Bookmark()
		p.inSync()
		p.settle()
		p.Update("shop/a", nil)
		time.Sleep(100 * time.Millisecond) // the progress does not cover it yet
		expect(t, p.broker, "synced", "added a", "updated a")
		p.broker.Set(testkit.Unreachable)
		p.die()
		p.takesOver()
		sink := recaller{p.broker.Connect(2)}
		_, err := p.second.Reconfigure(t.Context(), &bridge.Change{
			Version: "2", Informers: []string{"all"},
			Units: p.second.cfg.Units, Sinks: []bridge.SinkConfig{{Name: "sink", Sink: sink}},
		})
		testkit.OK(t, err)
		p.broker.Set(testkit.Healthy)
		time.Sleep(time.Minute)
		expect(t, p.broker)
		p.endSecond()
	})
}
