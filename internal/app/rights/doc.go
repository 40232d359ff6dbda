// Package rights finds what the informers of a configuration select, and which rights at the API
// server that needs.
//
// In: a configuration, and what the API server serves. Out: the rights as roles (bridge rbac), and
// for a running bridge the resources that it may not list (ListCheck).
package rights
