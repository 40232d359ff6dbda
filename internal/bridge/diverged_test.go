package bridge_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A server that was restored and is ahead is noticed by its objects.
// As after etcdutl snapshot restore --bump-revision --mark-compacted; and as where clients have
// written before the bridge was back, and etcd was compacted since.
func TestRestoredServerAhead(t *testing.T) {
	for name, features := range map[string]testkit.Features{"by WatchList": {}, "by pages": {NoWatchList: true}} {
		for _, crash := range []bool{false, true} {
			if crash {
				name += ", and a crash before that is settled"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := calmBroker(t, "sink")
					r := newRig(t, b)
					r.SetFeatures(features)
					for _, key := range []resource.Key{"shop/a", "shop/b", "shop/c"} {
						r.Create(key, nil)
					}
					backup := r.Version()
					r.start()
					r.settle()
					r.Update("shop/a", nil)
					r.Delete("shop/b")
					r.Create("shop/d", nil)
					r.settle()
					_, err := r.end()
					testkit.OK(t, err)
					expect(t, b, "added a", "added b", "added c", "synced", "updated a", "deleted b", "added d")

					r.Rewind(backup)
					r.Skip(1000)
					r.Expire()
					if crash {
						b.Set(testkit.Unreachable)
						r.start()
						r.settle()
						after := r.fs.CrashClone(crashed)
						_, _ = r.end()
						r.fs = after
						b.Set(testkit.Healthy)
					}
					r.start()
					r.settle()
					r.settle()
					reported := []string{
						"gap inferred", "added b inferred", "deleted d inferred", "synced", // as for what was forgotten
						"gap inferred", "updated a inferred", "synced", // and for what was undone
					}
					if crash { // what was sent from the first list lay on disk; the second is made again, and nobody knows what was sent of c
						reported = append(reported, "updated c inferred")
					}
					expect(t, b, reported...)
					epochs := 0
					for _, rec := range b.Records() {
						if rec.Name == "a" && rec.Inferred && strings.HasSuffix(rec.ID, "/epoch/1") {
							epochs++
						}
					}
					if epochs == 0 {
						t.Error("a is reported under an id that it had before")
					}
					_, err = r.end()
					testkit.OK(t, err)
				})
			})
		}
	}
}

// The list that follows from a rewind is not settled when the bridge dies, and the server has
// reached the known version when it is back: a watch from there would be silent about all that is
// undone.
func TestInterruptedRewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		for _, key := range []resource.Key{"shop/a", "shop/b"} {
			r.Create(key, nil)
		}
		backup := r.Version()
		r.start()
		r.settle()
		r.Update("shop/a", nil)
		r.settle()
		// Before the watch is cut, after which the bridge lists at once.
		r.Faults.CutAfter(testkit.WatchLists, -1, 400)
		r.Faults.Refuse(testkit.Lists, -1, 503, metav1.StatusReasonServiceUnavailable)
		r.Rewind(backup)
		r.settle()
		died := r.fs.CrashClone(crashed)
		_, _ = r.end()
		expect(t, b, "added a", "added b", "synced", "updated a", "gap inferred", "updated a inferred")

		r.fs = died
		r.Faults.Heal()
		r.Skip(1000)
		r.start()
		r.settle()
		expect(t, b, "gap inferred", "updated a inferred", "updated b inferred", "synced")
		_, err := r.end()
		testkit.OK(t, err)
	})
}

// The list of a gap is not settled when the bridge dies, and the next server still has the history
// since the watermark: a watch from there would bring versions that are older than what was sent.
func TestInterruptedGapList(t *testing.T) {
	for _, snapshot := range []informer.Snapshot{informer.SnapshotInitial, informer.SnapshotNever} {
		t.Run(string(snapshot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := calmBroker(t, "sink")
				r := newRig(t, b)
				r.cfg.CommitInterval = time.Hour
				for _, key := range []resource.Key{"shop/a", "shop/b"} {
					r.Create(key, nil)
				}
				r.start()
				_, err := r.end() // which commits
				testkit.OK(t, err)
				expect(t, b, "added a", "added b", "synced")

				r.cfg.Units[0].Snapshot = snapshot
				r.Update("shop/a", nil)
				newest := r.Update("shop/a", nil)
				r.Faults.Refuse(testkit.Watches, 1, 410, metav1.StatusReasonExpired)
				r.Faults.CutAfter(testkit.WatchLists, -1, 400)
				r.Faults.Refuse(testkit.Lists, -1, 503, metav1.StatusReasonServiceUnavailable)
				r.start()
				r.settle()
				expect(t, b, "gap inferred", "updated a inferred")
				r.crash()

				r.Faults.Heal()
				r.start()
				r.settle()
				expect(t, b, "gap inferred", "updated a", "synced")
				for _, rec := range b.Records() {
					if rec.Name == "a" && rec.Op == event.Updated && rec.ResourceVersion != string(newest) {
						t.Errorf("%s came behind %s", describe(rec), newest)
					}
				}
				_, err = r.end()
				testkit.OK(t, err)
			})
		})
	}
}

// A server that is behind is not taken for a restored one.
// A WatchList may begin with what a watch cache had before, and report the rest before its end.
func TestServerBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.cfg.Units[0].Snapshot = informer.SnapshotAlways
		for _, key := range []resource.Key{"shop/a", "shop/b", "shop/c", "shop/d"} {
			r.Create(key, nil)
		}
		before := r.Version()
		r.start()
		r.settle()
		r.Update("shop/a", nil)
		r.Update("shop/b", nil)
		r.Delete("shop/d") // which is remembered, since nothing later comes
		r.settle()
		_, err := r.end()
		testkit.OK(t, err)
		expect(t, b, "added a", "added b", "added c", "added d", "synced", "updated a", "updated b", "deleted d")

		r.Delete("shop/b")
		r.SetFeatures(testkit.Features{InitialAsOf: before})
		r.start()
		r.settle()
		r.settle()
		expect(t, b, "gap inferred", "synced a", "synced a", "synced b", "synced b", "synced c", "synced", "deleted b")
		for _, rec := range b.Records() {
			if !strings.Contains(string(rec.Data), `"resourceVersion":"`+rec.ResourceVersion+`"`) && rec.Name != "" {
				t.Errorf("%s has another state: %s", describe(rec), rec.Data)
			}
		}
		_, err = r.end()
		testkit.OK(t, err)
	})
}
