package kube

import (
	"fmt"
	"slices"
	"strings"
)

// coreResources are those of the core group that can be listed and watched.
var coreResources = []string{
	"configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes",
	"persistentvolumeclaims", "persistentvolumes", "pods",
	"podtemplates", "replicationcontrollers", "resourcequotas", "secrets", "serviceaccounts",
	"services",
}

// Offline tells group and resource of a name without asking an API server, "*" for all. It needs
// the plural, and the group of what is not in the core group: "pods", "deployments.apps",
// "widgets.v1.example.com", "*.apps", "*".
func Offline(name string) (group, resource string, err error) {
	if group, all, ok := wildcard(name); all {
		return "*", "*", nil
	} else if ok {
		return group, "*", nil
	}
	resource, group, _ = strings.Cut(strings.ToLower(name), ".")
	if first, rest, ok := strings.Cut(group, "."); isVersion(first) {
		group = ""
		if ok {
			group = rest
		}
	}
	if group == "" && !slices.Contains(coreResources, resource) {
		return "", "", fmt.Errorf("%s: ambiguous without a cluster: write the plural with its "+
			"group, such as deployments.apps, or ask the server", name)
	}
	return group, resource, nil
}

// isVersion reports whether a part of a name is a version of an API: v1, v1beta1.
func isVersion(part string) bool {
	digits, ok := strings.CutPrefix(part, "v")
	return ok && digits != "" && digits[0] >= '0' && digits[0] <= '9'
}
