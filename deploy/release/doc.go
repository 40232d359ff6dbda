// Release makes everything that a release consists of, from a clean tree: archives of the binary, an SBOM and the licences for each of them, the
// container image as an OCI archive, the chart, and the checksums of all. It needs Go and git, no container engine, and the same commit
// gives the same bytes.
package main
