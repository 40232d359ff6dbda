package faults

import "strings"

// Watches are the watches of a resource that are no WatchLists.
func Watches(resource string) Match {
	return func(r Request) bool {
		return of(r, resource) && r.Query.Get("watch") == "true" && !r.Query.Has("sendInitialEvents")
	}
}

// WatchLists are the watches of a resource that begin with what exists.
func WatchLists(resource string) Match {
	return func(r Request) bool { return of(r, resource) && r.Query.Has("sendInitialEvents") }
}

// Lists are the lists of a resource, but for probes.
func Lists(resource string) Match {
	return func(r Request) bool {
		return of(r, resource) && !r.Query.Has("watch") && r.Query.Get("limit") != "1"
	}
}

// Continues are the pages of lists of a resource, after the first.
func Continues(resource string) Match {
	return func(r Request) bool { return of(r, resource) && r.Query.Has("continue") }
}

// All are all requests of a resource.
func All(resource string) Match { return func(r Request) bool { return of(r, resource) } }

// Any are all requests.
func Any(Request) bool { return true }

func of(r Request, resource string) bool { return strings.HasSuffix(r.Path, "/"+resource) }
