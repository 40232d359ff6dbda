// Package bridge makes the informers and the sinks of a configuration, and starts and stops them in
// order. In comes a Config; out go events, by the sinks.
//
// Run starts services (an embedded broker), the committer, the sinks, then the informers. It stops
// in the direction of the data: the informers stop reading and drain, the sinks end, the last
// commit is written, the services end. All that under the drain deadline: changes that are not
// settled then stay behind the watermark and are sent after the next start.
//
// While it runs, the reconciler starts and stops single informers, as the API server serves other
// resources or Reconfigure says. The others are not touched. With Standby it is one of several
// replicas (replica.go), of which the leader runs its sinks:
//
//	joining ──progress read──> following ──elected──> taking ──progress taken──> leading
//	                                                    │ in vain                  │ superseded
//	                                                    └─────────> ended <────────┘
//
// In each of these states a stop ends it too: once everything read was sent, or waits on disk.
package bridge
