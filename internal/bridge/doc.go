// Package bridge assembles the pipeline and supervises it: for each unit (one resource, in one namespace or all) a reflector, a
// DeltaFIFO, an informer; for each sink a publisher; one checkpoint for all. It is the only package that knows every stage.
//
// Start: services (an embedded broker), committer, publishers, then the units. Stop flows in the direction of the data: the
// reflectors stop reading, each FIFO is closed and emptied, the listeners wait until what they passed on is settled, the publishers
// end, the last commit is written, the services end. All that under the drain deadline: when it passes, what is not settled stays
// behind the watermark and is sent after the next start.
//
// With a Planner, units come and go while the bridge runs (follow.go), on the same road: one that stops reads no more, settles everything that
// it has read, and leaves its state on disk; one that starts takes up what is there under its name. The others are not touched.
package bridge
