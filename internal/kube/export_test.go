package kube

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Texts are all resources of a catalog, each with everything that is known of it.
func (c *Catalog) Texts() []string {
	var list []string
	for i := range c.entries {
		list = append(list, fmt.Sprintf("%+v", c.entries[i]))
	}
	return list
}

// CatalogOf makes a catalog as if discovery had found this.
func CatalogOf(
	groups []*metav1.APIGroup, lists map[schema.GroupVersion][]metav1.APIResource,
	failed map[schema.GroupVersion]error,
) *Catalog {
	return newCatalog(&servedResources{groups: groups, lists: lists, failed: failed})
}
