// Package checkpoint commits what the logs of all informers have settled.
//
// Takes in: logs (Track), which say what is settled (changelog.Log.Checkpoint), and sinks
// (AddSink), which say where their own logs have to be read from. Hands on: one atomic batch at a
// time to the state database, for all of them: the last settled version of each object and the
// watermark, together.
//
// The watermark is the version up to which everything is settled, and beyond which something was
// seen: internal/informer/changelog has the rules. What is settled ahead of the watermark is in the settled
// state of its object, so that a replay from the watermark skips it.
//
// Blocking: Commit waits for the disk. A Committer commits on the goroutine of Run, and on those
// that call Commit.
package checkpoint
