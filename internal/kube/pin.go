package kube

import "strings"

// Pin gives names that continue to mean what they mean now, whatever the server will serve later:
// "widgets" becomes "widgets.example.com", so that a CRD of another group can't take the name over.
// A version that a name has stays; wildcards, and names that mean nothing now, stay as they are.
func (c *Catalog) Pin(names []string) []string {
	pinned := make([]string, len(names))
	for i, name := range names {
		pinned[i] = c.pin(name)
	}
	return pinned
}

func (c *Catalog) pin(name string) string {
	if _, _, ok := wildcard(name); ok {
		return name
	}
	e := c.find(name)
	if e == nil {
		return name
	}
	_, rest, qualified := strings.Cut(strings.ToLower(name), ".")
	if qualified && rest != e.Group {
		return e.Resource + "." + rest // it names a version
	}
	return e.String()
}

// IsWildcard reports whether a name selects everything, or all of a group.
func IsWildcard(name string) bool {
	_, _, ok := wildcard(name)
	return ok
}
