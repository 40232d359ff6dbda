// Package rights says what the informers of a configuration select, and which rights that needs at
// the API server. It prints them as roles (bridge rbac), and watches whether a running bridge has
// those to list.
package rights
