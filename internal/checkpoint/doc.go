// Package checkpoint turns settled changes into a position that a restart can resume from.
//
// Takes in: from each informer's controller its changes and what deltas say of versions
// (Tracker.Append, Mark), from its listeners what is settled (Tracker.Settle). Hands on: atomic commits
// to the state database (Committer): the last settled version of each object and the watermark,
// together.
//
// The watermark is the version up to which everything is settled, and beyond which something was
// seen: internal/changelog has the rules. What is settled ahead of the watermark is in the settled
// state of its object, so that a replay from the watermark skips it.
//
// Ordering: for one object, changes must be settled in the order they were appended. Blocking: a
// Tracker never blocks; a Committer commits from one goroutine, which Run starts and ends.
package checkpoint
