package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestLinked keeps out of the binary what links the types of the whole Kubernetes API: they are
// over ten megabytes of it.
func TestLinked(t *testing.T) {
	// informers and cache come with types, too, and are what the bridge is there instead of
	banned := []string{
		"k8s.io/client-go/applyconfigurations", "k8s.io/client-go/discovery",
		"k8s.io/client-go/dynamic", "k8s.io/client-go/informers", "k8s.io/client-go/kubernetes",
		"k8s.io/client-go/listers", "k8s.io/client-go/metadata", "k8s.io/client-go/tools/cache",
		"k8s.io/client-go/tools/leaderelection",
	}
	// core and authentication come with CEL's helpers; authorization has the reviews of bridge
	// serve
	types := []string{
		"k8s.io/api/apidiscovery/v2", "k8s.io/api/authentication/v1", "k8s.io/api/authorization/v1",
		"k8s.io/api/coordination/v1", "k8s.io/api/core/v1",
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for linked := range strings.FieldsSeq(string(out)) {
		if slices.ContainsFunc(banned, func(path string) bool {
			return linked == path || strings.HasPrefix(linked, path+"/")
		}) || strings.HasPrefix(linked, "k8s.io/api/") && !slices.Contains(types, linked) {
			t.Errorf("the bridge is linked with %s: go list -deps -f '{{.ImportPath}}: "+
				"{{.Imports}}' ./cmd/bridge shows by whom", linked)
		}
	}
}
