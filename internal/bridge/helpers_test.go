package bridge_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/resource"
)

var (
	pods    = resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}
	widgets = resource.Type{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
)

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// crashed is what a crash leaves: what was synced.
var crashed vfs.CrashCloneCfg

// key names the object of a number.
func key(n int) resource.Key { return resource.MakeKey("shop", fmt.Sprint("pod-", n)) }
