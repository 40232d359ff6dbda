// Package standby lets one replica of a bridge publish, and the others take over at once.
//
// A Lease decides who leads, and whether this replica may publish at this moment. On a
// ProgressLease, an object at the API server, the leader writes its Progress: for each unit the
// version up to which everything has reached the brokers, and the positions of the brokers' logs.
// Covers says which entries of this replica's change log that is: their listeners ack them.
//
// What it promises:
//
//   - Covers is true only of what has reached the sink, or is the leader's to send.
//   - Lease.Gate is nil only while no other replica can have become the leader, as far as clocks
//     run at the same pace. It uses no clock of another machine.
//   - ProgressLease.Put fails once another replica has taken the Lease. Take returns the last
//     progress of the leader before, which can't change any more.
//
// A Lease is run by its owner; a ProgressLease has no goroutine.
package standby
