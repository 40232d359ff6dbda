// Package deploy holds what it takes to run the bridge in a cluster, and the tests of it:
//
//	helm/bridge   the chart; values.schema.json is made of helm/values.base.schema.json and
//	              config/bridge.schema.json
//	kustomize     the same as plain manifests, made of the chart but for the configuration
//	image         the container image, for who builds it with a container engine
//	release       makes the image and the chart of a release; GoReleaser makes the rest
//	sbom          lists what a binary was linked of
//	licences      what the dependencies' licences allow, and the notices that a release carries
//	container     runs a container of a pod on this machine as a kubelet would, for the tests
//
// `go test . -update` writes what is made of something else. It is a module of its own, so that
// Helm and kustomize, which come as libraries, are not in the product's dependency graph.
package deploy
