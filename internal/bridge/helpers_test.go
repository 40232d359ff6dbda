package bridge_test

import (
	"testing"

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
