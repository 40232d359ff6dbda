package event_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

func TestQuarantined(t *testing.T) {
	pods := resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	m, err := event.NewMaker(event.MakerConfig{Cluster: "c", Informer: "all", Type: pods})
	if err != nil {
		t.Fatal(err)
	}
	unreadable := resource.Unreadable{Reason: "too-deep", Digest: strings.Repeat("0", 64)}
	t.Run("an object that is known has the partition key of its events", func(t *testing.T) {
		u := unreadable
		u.Key = "shop/web"
		object := m.Object(&event.Change{Op: event.Updated, Key: u.Key, UID: "u", Version: "7"})
		if e := m.Quarantined(&u, event.IDSuffix{}, time.Now()); e.PartitionKey != object.PartitionKey {
			t.Errorf("partition key %q, of the object %q", e.PartitionKey, object.PartitionKey)
		}
	})
	t.Run("one that nobody knows has the informer's", func(t *testing.T) {
		if e := m.Quarantined(&unreadable, event.IDSuffix{}, time.Now()); e.PartitionKey != "pods" {
			t.Errorf("partition key %q", e.PartitionKey)
		}
	})
}
