// Package bridge makes the pipelines and the sinks of a configuration, and starts and stops them in
// order. What comes in is a Config; what goes out is events, by the sinks.
//
// Run starts services (an embedded broker), the committer, the sinks, then the pipelines. It stops
// in the direction of the data: the pipelines read no more and drain, the sinks end, the last
// commit is written, the services end. All that under the drain deadline: what is not settled then
// stays behind the watermark and is sent after the next start.
//
// While it runs, the reconciler starts and stops single pipelines, as the API server serves other
// resources or Reconfigure says. The others are not touched. With Standby it is one of several
// replicas (replica.go), of which the leader runs its sinks:
//
//	joining ──progress read──> following ──elected──> taking ──progress taken──> leading
//	                                                    │ in vain                  │ superseded
//	                                                    └─────────> ended <────────┘
//
// In each of these states a stop ends it too: once everything read was sent, or waits on disk.
package bridge
