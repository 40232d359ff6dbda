// Package standby is what replicas of a bridge need so that one of them publishes and the others can take over at once.
//
// A Lease says who leads, and whether this replica may publish at this moment. A Board is an object at the API server on which
// the leader writes its Progress: for each unit up to which version everything is with the brokers, and where the brokers' logs stood. A Relay
// stands before the publisher of one listener: while another replica leads, it settles what that one's progress covers and holds the rest; once
// this replica leads, it hands on what it holds, and then passes everything through.
//
// What it promises:
//
//   - A relay settles nothing that the leader's progress does not cover, and hands on, in order, everything that it has not settled.
//   - Lease.Gate is nil only while no other replica can have become the leader, as far as clocks run at the same pace. It uses no clock of another machine.
//   - Board.Put fails once another replica has taken the board. Take gives the last progress of the one before, which can't be changed any more.
//
// A Lease is run by its owner; Boards and Relays have no goroutines.
package standby
