package standby_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
)

func TestProgressOfOneSink(t *testing.T) {
	further := map[string]resource.Version{"ahead": "20", "behind": "5"}
	for name, test := range map[string]struct {
		unit standby.Unit
		sink string
		want resource.Version
	}{
		"as all":           {standby.Unit{Delivered: "10", Further: further}, "other", "10"},
		"further":          {standby.Unit{Delivered: "10", Further: further}, "ahead", "20"},
		"never less":       {standby.Unit{Delivered: "10", Further: further}, "behind", "10"},
		"nothing of all":   {standby.Unit{Further: further}, "ahead", "20"},
		"nothing":          {standby.Unit{Further: further}, "other", ""},
		"without an order": {standby.Unit{Delivered: "x", Further: further}, "ahead", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.unit.Of(test.sink); got.Delivered != test.want || got.Further != nil {
				t.Errorf("got %+v, want version %q", got, test.want)
			}
		})
	}
}
