package publisher

// Pause sends nothing from now on, but for calls of the sink that are under way: what is added
// waits, as while a broker is unavailable. It outlasts neither the Publisher nor counts how often
// it was called.
func (p *Publisher) Pause() { p.breaker.Hold(true) }

// Resume ends a Pause.
func (p *Publisher) Resume() { p.breaker.Hold(false) }

// Demand is how many items are of use to the publisher now, those that it has included: none while
// an operator has paused the sink, one to try with while the broker is unavailable, else any
// number. More may be added, and wait. changed is closed when the answer may be another.
func (p *Publisher) Demand() (items int, changed <-chan struct{}) { return p.breaker.Demand() }
