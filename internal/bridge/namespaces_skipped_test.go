package bridge_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/testkit"
)

// Nothing may be taken for gone by a list with something of which nobody knows which object it is.
// What left the selection is reported all the same.
func TestLeaveDespiteBadList(t *testing.T) {
	for name, features := range map[string]testkit.Features{"by WatchList": {}, "by pages": {NoWatchList: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, namespaces := calmBroker(t, "sink"), testkit.NewServer(t, namespaceType)
				r := newRig(t, b)
				r.SetFeatures(features)
				r.selectNamespaces(namespaces)
				labelNamespace(namespaces, "shop", "prod")
				labelNamespace(namespaces, "old", "prod")
				r.Create("shop/a", nil)
				r.Create("old/o", nil)
				r.start()
				r.settle()
				expect(t, b, "added a", "added o", "synced")

				r.Faults.Refuse(testkit.Lists, -1, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				r.Faults.Refuse(testkit.WatchLists, -1, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
				r.Skip(10)
				r.Expire()
				r.Streams.Cut()
				r.settle() // it has to list, and can't yet
				labelNamespace(namespaces, "old", "lab")
				r.Create("shop/b", func(obj map[string]any) {
					metadata := obj["metadata"].(map[string]any)
					metadata["generation"] = "poison"
					delete(metadata, "name")
				})
				r.settle()
				r.Faults.Heal()
				time.Sleep(time.Minute)
				r.settle()
				expect(t, b, "gap inferred", "quarantined", "synced", "deleted o")
				if rec := b.Records()[len(b.Records())-1]; rec.Cause != "left-selector" {
					t.Errorf("%s: cause %q", describe(rec), rec.Cause)
				}

				labelNamespace(namespaces, "old", "prod")
				r.settle()
				expect(t, b, "added o")
				_, err := r.end()
				testkit.OK(t, err)
			})
		})
	}
}
