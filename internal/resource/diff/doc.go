// Package diff finds how one version of an object differs from another: as a list of changes for
// people, as a JSON Patch (RFC 6902), as a JSON Merge Patch (RFC 7386), or whether they differ at
// all but for some paths.
//
// In: the JSON of both versions. It must be valid and have no name twice in one object, as
// everything that a reflector has read. Out: Changes (changes.go), or the JSON of a patch, or
// whether the versions are equal (patch.go). The bytes are never decoded, so numbers are never
// rounded. The order of members does not matter.
//
// # Promises
//
//   - Changes names each value that differs by a path that people write, and omits the
//     resourceVersion. Items of a list are matched by their name where all have one. A Shape makes
//     the next comparison faster, and finds the same.
//   - Diff applied to the old version gives the new one, whatever the two are.
//   - Merge applied to the old version gives the new one, or Merge reports that no merge patch can.
//   - Time and memory are linear in the size of both versions. The paths of Changes have a bound. A
//     patch of Diff is at most as long as the one that replaces the document.
//   - Deep values are compared as bytes, and are not looked into: below 64 levels by Changes, below
//     128 levels by the others.
//
// Nothing here runs, blocks, locks or keeps anything.
package diff

// maxDepth is the level below which patches compare values as bytes. Each level compares its bytes
// once, so without a limit the time would be levels times bytes. Objects in clusters have some 20
// levels; the deepest that the API server accepts has 9,999.
const maxDepth = 128
