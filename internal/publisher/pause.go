package publisher

// Pause sends nothing from now on, but for calls of the sink that are under way: what is added
// waits, as while a broker is unavailable. It outlasts neither the Publisher nor counts how often
// it was called.
func (p *Publisher) Pause() { p.breaker.hold(true) }

// Resume ends a Pause.
func (p *Publisher) Resume() { p.breaker.hold(false) }
