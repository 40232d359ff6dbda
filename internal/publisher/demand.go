package publisher

import "math"

// Demand is how many items are of use to the publisher now, those that it has included: none while
// an operator has paused the sink, one to try with while the broker is unavailable, else any
// number. More may be added, and wait. changed is closed when the answer may be another.
func (p *Publisher) Demand() (items int, changed <-chan struct{}) {
	b := p.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.held:
		return 0, b.changed
	case b.state != closed:
		return 1, b.changed
	}
	return math.MaxInt, b.changed
}
