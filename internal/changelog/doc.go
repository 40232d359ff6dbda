// Package changelog knows how far the changes of one informer are settled, and which version of the
// API server that makes: the watermark, from which a watch can be resumed without losing anything; and
// which states of objects.
//
// Takes in: entries in stream order (Append), what of them is settled, in any order (Settle), and
// what deltas say of versions (Mark). Gives: the watermark, and states of objects.
//
// An entry is a change. A mark has no entry; it stands behind the entries that came before it. These
// are the rules:
//
//   - L1 An entry is settled when every listener that it is for has acknowledged it, or when it is
//     spooled. The caller says when.
//   - L2 Marks are passed behind the settled prefix of the entries. An Event's version is complete when
//     a mark with another version follows: several events can have one version (an expired lease
//     deletes up to 1,000 Events in one transaction). A Bookmark's version is complete at once, and a
//     ListEnd's too, also when it is lower. The watermark is the last complete version. Versions known
//     not to be newer than it are passed over, but for a ListEnd's.
//   - L3 Marks behind one entry merge, so there are at most as many as entries, and one.
//   - L4 The state to be committed of an object is that of the last entry in the settled prefix of the
//     object's entries.
//
// The order of the entries is that in which they were decided, the order of the watch: also where a
// listener reads them in another (docs/decisions/0021-two-orders.md).
//
// Nothing here blocks, starts a goroutine or is safe for concurrent use: checkpoint.Tracker guards it.
package changelog
