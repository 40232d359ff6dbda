package bridge_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// rememberer is a sink whose broker holds one message.
type rememberer struct {
	sinks.Sink
	holds sinks.Trace
	err   error
	asked *int
}

func (s rememberer) FindEarlierRun(_ context.Context, _ *event.Event, ours func(sinks.Trace) bool) (bool, error) {
	*s.asked++
	return s.err == nil && ours(s.holds), s.err
}

// Only a sink with earlier events gets a gap, which reports that the state was lost.
func TestLostStateGap(t *testing.T) {
	mine := sinks.Trace{MessageID: "all/uid-1/7", PartitionKey: "pods/shop/web"}
	tests := map[string]struct {
		holds sinks.Trace
		err   error
		gap   bool
	}{
		"an object of the unit":                     {holds: mine, gap: true},
		"an event about it":                         {holds: sinks.Trace{MessageID: "all/all/pods/synced/99", PartitionKey: "pods"}, gap: true},
		"an object of another informer":             {holds: sinks.Trace{MessageID: "some/uid-1/7", PartitionKey: "pods/shop/web"}},
		"an object of another resource":             {holds: sinks.Trace{MessageID: "all/uid-1/7", PartitionKey: "podtemplates/shop/web"}},
		"an event about the unit of one namespace":  {holds: sinks.Trace{MessageID: "all/all/pods/shop/synced/99", PartitionKey: "pods"}},
		"an event about a shard of what it is now":  {holds: sinks.Trace{MessageID: "all/all/pods/shard-0-of-2/synced/99", PartitionKey: "pods"}},
		"something, but can't say what":             {holds: mine, err: errors.New("no rights")},
		"what has no partition key, from elsewhere": {holds: sinks.Trace{MessageID: "all/uid-1/7"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				full, empty := calmBroker(t, "full"), calmBroker(t, "empty")
				r := newRig(t, empty)
				asked := 0
				r.addSink(full.Name, rememberer{full.Connect(0), tt.holds, tt.err, &asked})
				r.Create("shop/a", nil)
				r.start()
				r.settle()
				expect(t, empty, "added a", "synced")
				if tt.gap {
					expect(t, full, "gap inferred", "added a", "synced")
				} else {
					expect(t, full, "added a", "synced")
				}
				for _, rec := range full.Records() {
					if rec.Op == event.Gap && (!strings.Contains(string(rec.Data), `"forgotten"`) || !strings.Contains(string(rec.Data), "compare")) {
						t.Errorf("gap %s", rec.Data)
					}
				}
				_, err := r.end()
				testkit.OK(t, err)

				r.Create("shop/b", nil)
				r.Expire()
				r.start() // with the state that is there now
				r.settle()
				_, err = r.end()
				testkit.OK(t, err)
				expect(t, full, "gap inferred", "added b inferred", "synced")
				if asked != 1 {
					t.Errorf("asked %d times", asked)
				}
			})
		})
	}
}

// What comes again after a state was lost has ids that nobody has seen, and from then on the same
// ones.
func TestLostStateIDs(t *testing.T) {
	for holds, epoch := range map[string]string{
		"all/uid-1/7":                                      "/epoch/1",
		"all/uid-1/deleted/epoch/3":                        "/epoch/4",
		"all/all/pods/synced/99/epoch/11/selection/2":      "/epoch/12",
		"all/uid-1/7/sync/5/entered/3/epoch/x/selection/2": "/epoch/1",
		// Forged: no history has as many epochs. Other replicas accept up to 1,000,000.
		"all/uid-1/7/epoch/999999":              "/epoch/1000000",
		"all/uid-1/7/epoch/1000000":             "/epoch/1",
		"all/uid-1/7/epoch/9223372036854775807": "/epoch/1",
		"all/uid-1/7/epoch/9223372036854775808": "/epoch/1",
		"all/uid-1/7/epoch/-9":                  "/epoch/1",
	} {
		t.Run(holds, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker(t, "sink")
				r := newRig(t)
				asked := 0
				trace := sinks.Trace{MessageID: holds, PartitionKey: "pods/shop/web"}
				r.addSink(b.Name, rememberer{b.Connect(0), trace, nil, &asked})
				r.Create("shop/a", nil)
				b.Set(testkit.Hung) // nothing is settled, and it dies
				r.start()
				r.settle()
				died := r.fs.CrashClone(crashed)
				b.Set(testkit.Healthy)
				_, _ = r.end()
				r.fs = died
				trace.MessageID, trace.PartitionKey = "all/all/pods/synced/99"+epoch, "pods"
				r.cfg.Sinks[0].Sink = rememberer{b.Connect(1), trace, nil, &asked}
				r.start()
				r.settle()
				_, err := r.end()
				testkit.OK(t, err)
				r.start()
				r.Update("shop/a", nil)
				r.settle()
				_, err = r.end()
				testkit.OK(t, err)
				for _, rec := range b.Records() {
					if !strings.HasSuffix(rec.ID, epoch) {
						t.Errorf("%s, want %s", describe(rec), epoch)
					}
				}
				if len(b.Records()) == 0 {
					t.Error("nothing was sent")
				}
			})
		})
	}
}

// A broker that is unavailable at the first start delays no other sink. It is asked when it is
// available, also by another process, and gets everything: behind a gap if it holds events.
func TestUnavailableAtFirstStart(t *testing.T) {
	for name, tt := range map[string]struct {
		holds    string // the last id
		crash    bool   // the process dies before the sink is available
		latest   bool
		epoch    string // of what the late sink gets
		wantHeld bool
	}{
		"holds nothing":                         {},
		"holds nothing, and newest states only": {latest: true},
		"holds nothing, behind a crash":         {crash: true},
		"holds events":                          {holds: "all/uid-1/7", epoch: "/epoch/1", wantHeld: true},
		"holds events of a later epoch":         {holds: "all/uid-1/7/epoch/3", epoch: "/epoch/4", wantHeld: true},
		"holds events, and newest states only":  {holds: "all/uid-1/7", epoch: "/epoch/1", wantHeld: true, latest: true},
		"holds events, behind a crash":          {holds: "all/uid-1/7", epoch: "/epoch/1", wantHeld: true, crash: true},
		"holds events of another unit":          {holds: "some/uid-1/7"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there, late := calmBroker(t, "there"), calmBroker(t, "late")
				r := newRig(t, there)
				var available atomic.Bool
				holds := sinks.Trace{MessageID: tt.holds, PartitionKey: "pods/shop/web"}
				r.addSink(late.Name, rememberer{unavailable{late.Connect(0), &available}, holds, nil, new(int)})
				r.cfg.Units[0].Sinks[1].Latest = tt.latest
				r.Create("shop/a", nil)
				r.Create("shop/gone", nil)
				r.start()
				expect(t, there, "added a", "added gone", "synced")
				r.Update("shop/a", nil)
				r.Delete("shop/gone")
				time.Sleep(10 * time.Second) // it waits on disk
				r.settle()
				expect(t, there, "updated a", "deleted gone")
				if tt.crash {
					died := r.fs.CrashClone(crashed)
					_, _ = r.end()
					r.fs = died
					r.cfg.Sinks[1].Sink = rememberer{unavailable{late.Connect(1), &available}, holds, nil, new(int)}
					r.start()
				}
				available.Store(true)
				time.Sleep(time.Minute) // between attempts to open it
				want := []string{"added a", "added gone", "synced", "updated a", "deleted gone"}
				if tt.wantHeld {
					want = append(want, "gap inferred")
				}
				r.Create("shop/b", nil)
				r.settle()
				expect(t, late, append(want, "added b")...)
				records := late.Records()
				if tt.wantHeld && records[0].Op != event.Gap {
					t.Errorf("the first is %s", describe(records[0]))
				}
				for _, rec := range records {
					if _, epoch, _ := strings.Cut(rec.ID, "/epoch/"); epoch != strings.TrimPrefix(tt.epoch, "/epoch/") {
						t.Errorf("%s, want %s", describe(rec), tt.epoch)
					}
				}
				for _, rec := range there.Records() {
					if strings.Contains(rec.ID, "/epoch/") {
						t.Errorf("the other sink has %s", describe(rec))
					}
				}
				_, err := r.end()
				testkit.OK(t, err)

				r.start() // with the epoch that is on disk
				r.Update("shop/b", nil)
				r.settle()
				expect(t, late, "updated b")
				records = late.Records()
				if last := records[len(records)-1]; !strings.HasSuffix(last.ID, tt.epoch) {
					t.Errorf("after a restart %s, want %s", describe(last), tt.epoch)
				}
				_, err = r.end()
				testkit.OK(t, err)
			})
		})
	}
}

// unavailable is a sink that can't be opened until its broker is available.
type unavailable struct {
	sinks.Sink
	available *atomic.Bool
}

func (s unavailable) Open(ctx context.Context) error {
	if s.available.Load() {
		return s.Sink.Open(ctx)
	}
	return &sinks.Error{Class: sinks.Reconnect, Err: errors.New("connection refused")}
}
