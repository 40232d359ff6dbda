package truth

// Collection is what one watch covers: a resource, in one namespace or all.
type Collection struct {
	Group      string
	Version    string
	Resource   string
	Namespaced bool
	Namespace  string // "" for all
}

// Core is a resource of the core group in one namespace.
func Core(resource, namespace string) Collection {
	return Collection{Version: "v1", Resource: resource, Namespaced: true, Namespace: namespace}
}

// Named is a resource of a named group in one namespace.
func Named(resource, group, version, namespace string) Collection {
	return Collection{Group: group, Version: version, Resource: resource, Namespaced: true, Namespace: namespace}
}

// Cluster is a cluster-scoped resource.
func Cluster(resource, group, version string) Collection {
	return Collection{Group: group, Version: version, Resource: resource}
}

// String is the resource as kubectl names it: "deployments.apps".
func (c Collection) String() string {
	if c.Group == "" {
		return c.Resource
	}
	return c.Resource + "." + c.Group
}

// APIVersion is "apps/v1", or "v1" for the core group.
func (c Collection) APIVersion() string {
	if c.Group == "" {
		return c.Version
	}
	return c.Group + "/" + c.Version
}

// Path is the URL path of the collection in a namespace, "" for all, without a leading slash.
func (c Collection) Path(namespace string) string {
	path := "apis/" + c.APIVersion()
	if c.Group == "" {
		path = "api/" + c.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + c.Resource
}
