package publisher

import "github.com/kubebridge/bridge/internal/sinks"

// passes asks the gate. While it is shut every message of the batch gets its error, in place of any
// answer: behind a gate that was shut meanwhile, an answer may be about what another process has
// stored.
func (p *Publisher) passes(batch []*sinks.Message) bool {
	err := p.shut()
	if err == nil {
		return true
	}
	sinks.Fail(batch, err)
	return false
}

// shut is why nothing may be sent now, nil when it may.
func (p *Publisher) shut() error {
	if p.cfg.Gate == nil {
		return nil
	}
	if err := p.cfg.Gate(); err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	return nil
}

// Outline is a shorter form of a position, for Inherit; nil where there is none.
func (p *Publisher) Outline(position []byte) []byte {
	if o, ok := p.cfg.Sink.(sinks.Outliner); ok {
		return o.Outline(position)
	}
	return nil
}

// Inherit replaces the saved position of the sink's log by that of another process, which has
// published until now. It is called before Run. nil changes nothing.
func (p *Publisher) Inherit(position []byte) {
	if position != nil {
		p.cfg.Saved.Position = position
	}
}

// Unread is the position from which the sink's log has still to be read; nil once that has begun.
// A publisher that takes the place of one that was never open inherits it.
func (p *Publisher) Unread() []byte {
	if p.holds.low() != nil {
		return nil
	}
	return p.cfg.Saved.Position
}
