package bridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// rememberer is a sink whose broker holds one message.
type rememberer struct {
	sinks.Sink
	holds sinks.Trace
	err   error
	asked *int
}

func (s rememberer) Remembers(_ context.Context, _ *event.Event, ours func(sinks.Trace) bool) (bool, error) {
	*s.asked++
	return s.err == nil && ours(s.holds), s.err
}

func TestOnlyASinkThatHasEventsOfBeforeIsToldThatTheStateIsGone(t *testing.T) {
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
		"something, but can't tell what":            {holds: mine, err: errors.New("no rights")},
		"what has no partition key, from elsewhere": {holds: sinks.Trace{MessageID: "all/uid-1/7"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				full, empty := calmBroker("full"), calmBroker("empty")
				r := newRig(t, empty)
				asked := 0
				r.addSink(full.name, rememberer{full.connect(0), tt.holds, tt.err, &asked})
				r.Create("shop/a", nil)
				r.start()
				r.settle()
				expect(t, empty, "added a", "synced")
				if tt.gap {
					expect(t, full, "gap inferred", "added a", "synced")
				} else {
					expect(t, full, "added a", "synced")
				}
				for _, rec := range full.records() {
					if rec.Op == event.Gap && (!strings.Contains(string(rec.Data), `"forgotten"`) || !strings.Contains(string(rec.Data), "compare")) {
						t.Errorf("gap %s", rec.Data)
					}
				}
				_, err := r.end()
				ok(t, err)

				r.Create("shop/b", nil)
				r.Expire()
				r.start() // with the state that is there now
				r.settle()
				_, err = r.end()
				ok(t, err)
				expect(t, full, "gap inferred", "added b inferred", "synced")
				if asked != 1 {
					t.Errorf("asked %d times", asked)
				}
			})
		})
	}
}

// What comes again after a state was lost bears ids that nobody has seen, and from then on the same ones.
func TestIDsAreOthersWhenTheStateWasLost(t *testing.T) {
	for holds, epoch := range map[string]string{
		"all/uid-1/7":                                      "/epoch/1",
		"all/uid-1/deleted/epoch/3":                        "/epoch/4",
		"all/all/pods/synced/99/epoch/11/selection/2":      "/epoch/12",
		"all/uid-1/7/sync/5/entered/3/epoch/x/selection/2": "/epoch/1",
	} {
		t.Run(holds, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker("sink")
				r := newRig(t)
				asked := 0
				r.addSink(b.name, rememberer{b.connect(0), sinks.Trace{MessageID: holds, PartitionKey: "pods/shop/web"}, nil, &asked})
				r.Create("shop/a", nil)
				b.set(hung) // nothing is settled, and it dies
				r.start()
				r.settle()
				died := r.fs.CrashClone(crashed)
				b.set(calm)
				_, _ = r.end()
				r.fs = died
				r.cfg.Sinks[0].Sink = rememberer{b.connect(1), sinks.Trace{MessageID: "all/all/pods/synced/99" + epoch, PartitionKey: "pods"}, nil, &asked}
				r.start()
				r.settle()
				_, err := r.end()
				ok(t, err)
				r.start()
				r.Update("shop/a", nil)
				r.settle()
				_, err = r.end()
				ok(t, err)
				for _, rec := range b.records() {
					if !strings.HasSuffix(rec.ID, epoch) {
						t.Errorf("%s, want %s", describe(rec), epoch)
					}
				}
				if len(b.records()) == 0 {
					t.Error("nothing was sent")
				}
			})
		})
	}
}

func TestAFirstListDoesNotWaitForASinkThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := calmBroker("there")
		r := newRig(t, there)
		for _, name := range []string{"away", "away-too"} { // both are waited for at the same time
			r.addSink(name, rememberer{closed{calmBroker(name).connect(0)}, sinks.Trace{}, nil, new(int)})
		}
		r.Create("shop/a", nil)
		r.start()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		expect(t, there, "added a", "synced")
		_, _ = r.end()
	})
}

// closed is a sink that can't be opened yet.
type closed struct{ sinks.Sink }

func (closed) Open(context.Context) error {
	return &sinks.Error{Class: sinks.Reconnect, Err: errors.New("connection refused")}
}
