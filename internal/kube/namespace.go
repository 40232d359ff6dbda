package kube

import (
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// podNamespace is where a pod finds the namespace of its service account.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace is that of the pod, or, where a kubeconfig is used, that of its context; "" for none.
// See RESTConfig for the parameters.
func Namespace(kubeconfig, context string) string {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	raw, err := rules.Load()
	if err != nil {
		return "" // RESTConfig returns the error
	}
	if api.IsConfigEmpty(raw) && kubeconfig == "" && context == "" {
		name, err := os.ReadFile(podNamespace)
		if err != nil {
			return "" // so does it of this
		}
		return strings.TrimSpace(string(name))
	}
	if context == "" {
		context = raw.CurrentContext
	}
	if c := raw.Contexts[context]; c != nil {
		return c.Namespace
	}
	return ""
}
