package rights

import (
	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/kube"
)

// Selection is what an informer selects.
func Selection(inf *config.Informer) kube.Selection {
	return kube.Selection{
		Names: inf.Resources, Exclude: inf.Exclude,
		Namespaced: len(inf.Namespaces) > 0 || inf.NamespaceSelector != "",
	}
}

// Namespaces are those of an informer, or the one "" that means all.
func Namespaces(inf *config.Informer) []string {
	if len(inf.Namespaces) == 0 {
		return []string{""}
	}
	return inf.Namespaces
}
