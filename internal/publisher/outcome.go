package publisher

// Outcome is what became of an item.
type Outcome string

// The outcomes of settled items.
const (
	Acknowledged Outcome = "acknowledged" // the sink has it
	Recalled     Outcome = "recalled"     // the sink had it from an earlier process
	DeadLettered Outcome = "dead-letter"  // the sink refused it; it is in the dead letters
	// the sink refused it, and so did the place of dead letters, or there is none; it lies in the
	// state directory
	Kept Outcome = "kept"
	// the sink refused it, and the adder, who asked for that, has it back
	Returned Outcome = "returned"
	// the sink refused it, there is no place for dead letters, and nothing keeps it, or no more
	Lost Outcome = "lost"
)

// Outcome is what became of the item. It holds from when the item is settled until it is added
// again.
func (it *Item) Outcome() Outcome {
	switch it.state {
	case itemLost:
		return Lost
	case itemReturned:
		return Returned
	case itemKept:
		return Kept
	case itemDeadLettered:
		return DeadLettered
	case itemRecalled:
		return Recalled
	default:
		return Acknowledged
	}
}

// Refused is why the sink refused the item; nil for one that it did not refuse. It holds as Outcome
// does.
func (it *Item) Refused() error { return it.refused }

// Attempts is in how many calls of the sink the item was, none for what was recalled. It holds as
// Outcome does.
func (it *Item) Attempts() int { return it.attempts }
