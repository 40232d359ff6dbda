// Package checkpoint commits what the logs of all informers have settled.
//
// In come logs (Track), each of which hands out its settled part (changelog.Log.Checkpoint), and
// sinks (AddSink), each of which reports where its own log has to be read from. Out goes one atomic
// batch at a time to the state database, for all of them: the last settled version of each object
// and the watermark, together.
//
// The watermark is the version up to which everything is settled, and beyond which something was
// seen; internal/informer/changelog has the rules. States settled ahead of the watermark are in the
// batch too, so that a replay from the watermark skips them.
//
// Blocking: Commit waits for the disk. A Committer commits on the goroutine of Run, and on those
// that call Commit. The bridge starts Run before the informers and stops it after them.
package checkpoint
