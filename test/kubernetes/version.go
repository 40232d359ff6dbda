package main

import (
	"runtime/debug"
	"strings"
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// The version that the components announce, under /version and in their user agents, is normally
// stamped in by the linker flags of Kubernetes' release scripts; without them it is v0.0.0-master,
// and a client that looks at the server's version would see what no real server says. These names
// are those very variables, so that a plain `go build` is enough.
var (
	//go:linkname gitVersion k8s.io/component-base/version.gitVersion
	gitVersion string
	//go:linkname gitMajor k8s.io/component-base/version.gitMajor
	gitMajor string
	//go:linkname gitMinor k8s.io/component-base/version.gitMinor
	gitMinor string
	//go:linkname clientVersion k8s.io/client-go/pkg/version.gitVersion
	clientVersion string
)

// setKubernetesVersion makes the components announce the version of the module that they were built
// from.
func setKubernetesVersion() {
	v := kubernetesVersion()
	parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
	if len(parts) != 3 {
		return
	}
	gitVersion, gitMajor, gitMinor = v, parts[0], parts[1]
	clientVersion = v
	_ = version.SetDynamicVersion(v) // it must equal gitVersion, and now does
}

// kubernetesVersion is the version of k8s.io/kubernetes in go.mod, or "" if the program was built
// in a way that forgot it.
func kubernetesVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == "k8s.io/kubernetes" {
			return dep.Version
		}
	}
	return ""
}
