package resource

import (
	"strings"

	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Type is one resource as the API server serves it: what discovery says of it, and no more.
type Type struct {
	Group      string // "" for the core group
	Version    string // "v1"
	Resource   string // plural, lower case: "deployments"
	Kind       string // "Deployment"
	Namespaced bool
}

// APIVersion is the value of an object's apiVersion member: "apps/v1", or "v1" for the core group.
func (t Type) APIVersion() string {
	if t.Group == "" {
		return t.Version
	}
	return t.Group + "/" + t.Version
}

// String names the type as kubectl does: "deployments.apps", or "pods" for the core group.
// It is stable across API versions, so state on disk is kept under it.
func (t Type) String() string {
	if t.Group == "" {
		return t.Resource
	}
	return t.Resource + "." + t.Group
}

// GVR is the type in apimachinery's words.
func (t Type) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Resource}
}

// root is the path of the type's group and version, without a leading slash.
func (t Type) root() string {
	if t.Group == "" {
		return "api/" + t.Version
	}
	return "apis/" + t.Group + "/" + t.Version
}

// CollectionPath is the URL path of the collection, without a leading slash: of one namespace, or
// of all for namespace "".
func (t Type) CollectionPath(namespace string) string {
	if t.Namespaced && namespace != "" {
		return t.root() + "/namespaces/" + namespace + "/" + t.Resource
	}
	return t.root() + "/" + t.Resource
}

// ObjectPath is the URL path of one object, without a leading slash:
// "apis/apps/v1/namespaces/shop/deployments/web".
func (t Type) ObjectPath(key Key) string {
	namespace, name := key.Split()
	return t.CollectionPath(namespace) + "/" + name
}

// Key names an object within its type as client-go's MetaNamespaceKeyFunc does: "namespace/name",
// or "name" for cluster-scoped objects.
type Key string

// MakeKey joins a namespace (which may be empty) and a name.
func MakeKey(namespace, name string) Key {
	if namespace == "" {
		return Key(name)
	}
	return Key(namespace + "/" + name)
}

// Digest stands for the key where its name must not be shown. It is the same in every process.
func (k Key) Digest() uint64 { return xxhash.Sum64String(string(k)) }

// Split gives back the namespace ("" for cluster-scoped objects) and the name. Neither can contain
// a slash.
func (k Key) Split() (namespace, name string) {
	if namespace, name, ok := strings.Cut(string(k), "/"); ok {
		return namespace, name
	}
	return "", string(k)
}
