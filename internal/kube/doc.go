// Package kube finds the API server and what it serves.
//
// In: what a user wrote, a kubeconfig and a context, and names of resources as kubectl takes them.
// Out: a rest.Config, the resource.Types of the names, the identity of the cluster, the rights that
// the bridge has (Resolver.Allowed) and the roles that give them. Errors say what to do. Leases
// reads and writes the Leases by which replicas elect a leader.
//
// What it promises:
//
//   - A name means what kubectl would take it for: plural, singular, short name, kind, with a group
//     or a group and a version behind it. "*" is everything that can be listed and watched, each
//     resource once, in its preferred version.
//   - One API group that does not answer (an aggregated server that is down) hides only its own
//     resources, and is reported: whoever asks can distinguish "there is no such resource" from
//     "nobody knows right now".
//   - Nothing is cached. A Catalog is what the server served when it was asked, and never changes;
//     ask again to see CRDs that have come since.
//
// Calls block until the server has answered or their context has ended. Nothing here starts a
// goroutine that outlives its call.
package kube
