// Package image makes the container image of the bridge, as an OCI image layout, without a
// container engine: the static binary, certificate authorities, licences, and nothing else. The
// same inputs give the same bytes.
//
// The Containerfile beside it makes the same image with a container engine; a test compares the
// two.
package image
