package bridge_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// As after etcdutl snapshot restore --bump-revision --mark-compacted; and as where clients have written before the bridge was back, and etcd
// was compacted since.
func TestAServerThatWasRestoredAndIsAheadIsNoticedByItsObjects(t *testing.T) {
	for name, features := range map[string]testkit.Features{"by WatchList": {}, "by pages": {NoWatchList: true}} {
		for _, crash := range []bool{false, true} {
			if crash {
				name += ", and a crash before that is settled"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := calmBroker("sink")
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
					ok(t, err)
					expect(t, b, "added a", "added b", "added c", "synced", "updated a", "deleted b", "added d")

					r.Rewind(backup)
					r.Skip(1000)
					r.Expire()
					if crash {
						b.set(away)
						r.start()
						r.settle()
						after := r.fs.CrashClone(crashed)
						_, _ = r.end()
						r.fs = after
						b.set(calm)
					}
					r.start()
					r.settle()
					r.settle()
					told := []string{
						"gap inferred", "added b inferred", "deleted d inferred", "synced", // as for what was forgotten
						"gap inferred", "updated a inferred", "synced", // and for what was undone
					}
					if crash { // the list is made again, what was told of the first lay on disk
						told = append(told, "gap inferred", "synced")
					}
					expect(t, b, told...)
					epochs := 0
					for _, rec := range b.records() {
						if rec.Name == "a" && rec.Inferred && strings.HasSuffix(rec.ID, "/epoch/1") {
							epochs++
						}
					}
					if epochs == 0 {
						t.Error("a is told under an id that it had before")
					}
					_, err = r.end()
					ok(t, err)
				})
			})
		}
	}
}
