// Package controllerruntime shows that a cache and a manager of controller-runtime work on the
// library for consumers, without an API server. It is not in the library's module, so that the
// library's graph has no controller-runtime in it.
package controllerruntime
