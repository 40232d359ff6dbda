// Package patch says how one version of an object differs from another: as a JSON Patch (RFC 6902), and as a JSON Merge
// Patch (RFC 7386).
//
// It takes in the JSON of both versions and hands on the JSON of a patch. It works on the bytes: what is byte-equal is passed over
// without a look, numbers are never read and so never rounded, and the order of members does not matter. The versions have to be valid
// JSON without a name twice in one object, as everything is that a reflector has read.
//
// # Promises
//
//   - Diff applied to the old version gives the new one, whatever the two are.
//   - Merge applied to the old version gives the new one, or Merge says that no merge patch can: one can't set a member to null.
//
// Nothing here runs, blocks, locks or keeps anything.
package patch
