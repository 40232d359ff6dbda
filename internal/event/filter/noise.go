package filter

import "github.com/kubebridge/bridge/internal/resource"

// always are the paths that differ in every update and say nothing by themselves.
func always(on []string) []resource.Path {
	paths := mustPaths("metadata.resourceVersion", "metadata.managedFields")
	if len(on) > 0 {
		paths = append(paths, mustPaths("metadata.generation")...) // it counts changes of the spec
	}
	return paths
}

// electionRecord is the annotation in which leaders renew their claim, where they do not use a
// Lease.
const electionRecord = `metadata.annotations["control-plane.alpha.kubernetes.io/leader"]`

// triggerTime is the annotation with the time of the last change of a Pod or Service that made a
// controller look at the endpoints.
const triggerTime = `metadata.annotations["endpoints.kubernetes.io/last-change-trigger-time"]`

// heartbeats are the paths of a type that are written again and again to say that somebody is
// alive, or was looked at.
func heartbeats(t resource.Type) []resource.Path {
	switch t.String() {
	case "leases.coordination.k8s.io":
		return mustPaths("spec.renewTime")
	case "nodes":
		return mustPaths("status.conditions.*.lastHeartbeatTime")
	case "endpoints":
		return mustPaths(electionRecord, triggerTime, "subsets.*.addresses.*.targetRef.resourceVersion",
			"subsets.*.notReadyAddresses.*.targetRef.resourceVersion")
	case "endpointslices.discovery.k8s.io":
		return mustPaths(triggerTime, "endpoints.*.targetRef.resourceVersion")
	case "configmaps":
		return mustPaths(electionRecord)
	}
	return nil
}

func mustPaths(texts ...string) []resource.Path {
	var paths []resource.Path
	for _, text := range texts {
		p, err := resource.ParsePath(text)
		if err != nil {
			panic(err)
		}
		paths = append(paths, p)
	}
	return paths
}
