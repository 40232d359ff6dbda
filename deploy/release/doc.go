// Release adds the container image and the chart to the dist/ that GoReleaser made: an OCI archive
// for the architectures of linux with its digest, and the chart under the version of the release.
// With -push it pushes the image. It needs Go and git, no container engine, and the same commit
// gives the same bytes.
package main
