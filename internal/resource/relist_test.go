package resource_test

import (
	"encoding/json"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

func TestRelistKind(t *testing.T) {
	seen := map[string]bool{}
	for kind := resource.RelistGap; kind <= resource.RelistDeleted; kind++ {
		text, err := json.Marshal(resource.Relist{Kind: kind})
		var again resource.Relist
		if err := json.Unmarshal(text, &again); err != nil || again.Kind != kind {
			t.Errorf("%s is read as %s, %v", text, again.Kind, err)
		}
		if err != nil || seen[kind.String()] {
			t.Errorf("%s: %v", kind, err)
		}
		seen[kind.String()] = true
	}
	t.Run("another one is refused", func(t *testing.T) {
		if err := json.Unmarshal([]byte(`{"Kind":"kind 8"}`), new(resource.Relist)); err == nil {
			t.Error("it is read")
		}
	})
}
