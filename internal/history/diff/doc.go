// Package diff finds the fields in which two versions of an object differ, from their JSON alone.
//
// Most members stay as they were from one version to the next. With the Shape of the version
// before, those are compared as bytes, and only what differs is parsed.
package diff
