// Package jsontree walks over JSON that is known to be valid, in time linear in its size.
//
// In: the bytes of a document. Parse goes over them once and remembers where each object and array
// ends. Out: Values and Walkers, which are offsets in these bytes. Skipping an object or array
// takes constant time, so walking down through the levels of a document visits no byte once per
// level.
//
// # Promises
//
//   - The index takes 8 bytes for each object and array. No value is copied or decoded.
//   - Bytes that are not valid JSON, or end too soon, give fewer members than there are, and never
//     a panic or an endless loop. Use jsonscan where the syntax has to be checked.
//   - Pairs and Members find a member by name in constant time on average, whatever its place.
//
// Nothing here blocks or starts anything. A Value is immutable and may be used concurrently. A
// Walker may not.
package jsontree
