// Package standby is what replicas of a bridge need so that one of them publishes and the others
// can take over at once.
//
// A Lease decides who leads, and whether this replica may publish at this moment. On a
// ProgressLease, an object at the API server, the leader writes its Progress: for each unit the
// version up to which everything has reached the brokers, and the positions of the brokers' logs. A
// Relay stands before the publisher of one listener. While another replica leads, it settles what
// that one's progress covers and holds the rest. Once this replica leads, it hands on what it
// holds, and then passes everything through.
//
// What it promises:
//
//   - A relay settles nothing that the leader's progress does not cover, and hands on, in order,
//     everything that it has not settled.
//   - Lease.Gate is nil only while no other replica can have become the leader, as far as clocks
//     run at the same pace. It uses no clock of another machine.
//   - ProgressLease.Put fails once another replica has taken the Lease. Take returns the last
//     progress of the leader before, which can't change any more.
//
// A Lease is run by its owner; ProgressLeases and Relays have no goroutines.
package standby
