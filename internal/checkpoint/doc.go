// Package checkpoint turns settled changes into a position that a restart can resume from.
//
// Takes in: from each informer's controller what was popped (Tracker.Begin, Hold), from its
// listeners what is settled (Tracker.Settle). Hands on: atomic commits to the state database
// (Committer): the last settled version of each object and the watermark, together.
//
// The watermark is the version up to which everything is settled, and beyond which something was
// seen: several events can bear one resourceVersion (an expired lease deletes up to 1,000 Events in
// one transaction), so version X is passed only when a later event or a bookmark has been popped.
// Deltas take their places in the stream's order and changes settle in any; the watermark moves
// over those that are settled at the front. What is settled ahead of the watermark is in the
// settled state of its object, so that a replay from the watermark skips it.
//
// Ordering: for one object, changes must be settled in the order they were held. Blocking: a
// Tracker never blocks; a Committer commits from one goroutine, which Run starts and ends.
package checkpoint
