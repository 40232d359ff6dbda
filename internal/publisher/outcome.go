package publisher

import "time"

// Outcome is what became of an item.
type Outcome string

// The outcomes of settled items.
const (
	Acknowledged Outcome = "acknowledged" // the sink has it
	Recalled     Outcome = "recalled"     // the sink had it from an earlier process
	DeadLettered Outcome = "dead-letter"  // the sink refused it; it is in the dead letters
	Lost         Outcome = "lost"         // the sink refused it, and there is no place for dead letters
)

// Outcome is what became of the item. It holds from when the item is settled until it is added again.
func (it *Item) Outcome() Outcome {
	switch {
	case it.refused != nil && it.lost:
		return Lost
	case it.refused != nil:
		return DeadLettered
	case it.recalled:
		return Recalled
	default:
		return Acknowledged
	}
}

// Attempts is in how many calls of the sink the item was, none for what was recalled. It holds as Outcome does.
func (it *Item) Attempts() int { return it.attempts }

// watch shows what is settled to those who look on, before its settlers have it back.
func (p *Publisher) watch(settled []*Item) {
	if len(settled) == 0 {
		return
	}
	p.metrics.delivered(settled, time.Now())
	if p.onSettle != nil {
		p.onSettle(settled)
	}
}
