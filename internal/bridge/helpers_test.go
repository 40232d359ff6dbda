package bridge_test

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	pods    = testkit.Pods
	widgets = resource.Type{Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true}
)

// crashed is what a crash leaves: what was synced.
var crashed vfs.CrashCloneCfg

// key names the object of a number.
func key(n int) resource.Key { return resource.MakeKey("shop", fmt.Sprint("pod-", n)) }
