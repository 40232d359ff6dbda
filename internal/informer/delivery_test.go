package informer

import (
	"testing"

	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
)

// TestCovers has a progress cover a frontier in its epoch, up to its version or its front, or in a
// later epoch.
func TestCovers(t *testing.T) {
	front := &standby.NewestVersion{Version: "12"}
	for name, test := range map[string]struct {
		progress Delivery
		frontier Frontier
		want     bool
	}{
		"up to its version":             {Delivery{at: "10"}, Frontier{newest: "10"}, true},
		"not behind it":                 {Delivery{at: "10"}, Frontier{newest: "11"}, false},
		"nothing is known":              {Delivery{}, Frontier{}, true},
		"nothing is delivered":          {Delivery{}, Frontier{newest: "1"}, false},
		"the front is all there is":     {Delivery{at: "10", newestVersion: front, hasAll: true}, Frontier{newest: "12"}, true},
		"there is more than the front":  {Delivery{at: "10", newestVersion: front}, Frontier{newest: "12"}, false},
		"behind the front":              {Delivery{at: "10", newestVersion: front, hasAll: true}, Frontier{newest: "13"}, false},
		"its sink is further":           {Delivery{at: "10", further: map[string]resource.Version{"a": "11"}}, Frontier{newest: "11"}, true},
		"another sink is further":       {Delivery{at: "10", further: map[string]resource.Version{"b": "11"}}, Frontier{newest: "11"}, false},
		"an earlier epoch":              {Delivery{at: "2", epoch: 1}, Frontier{newest: "11"}, true},
		"an earlier epoch, too early":   {Delivery{epoch: 1}, Frontier{newest: "11"}, false},
		"a later epoch":                 {Delivery{at: "20"}, Frontier{newest: "2", epoch: 1}, false},
		"a selection that is not known": {Delivery{at: "10", selection: "3"}, Frontier{newest: "10", selection: "4"}, false},
		"a selection that is known":     {Delivery{at: "10", selection: "4"}, Frontier{newest: "10", selection: "4"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.progress.Covers(&test.frontier, "a"); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
