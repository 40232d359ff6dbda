package pipeline

import (
	"context"
	"errors"
	"slices"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/standby"
)

// Relay stands before the publisher of one listener, where there are other replicas.
type Relay struct {
	*standby.Relay
	// SinkKey is the Sink's Key.
	SinkKey string
}

// HandOn is Lead in a goroutine of its own. A sink that was replaced takes nothing any more; the
// pipeline's successor reads again what it had.
func (r *Relay) HandOn(ctx context.Context) error {
	if err := r.Lead(ctx); !errors.Is(err, publisher.ErrStopped) {
		return err
	}
	return nil
}

// before returns what a listener adds its events to: a relay before the publisher, or the
// publisher.
func (p *Pipeline) before(sink Sink) informer.Publisher {
	if p.env.Replicas == nil {
		return sink.Publisher
	}
	r := &Relay{SinkKey: sink.Key, Relay: standby.NewRelay(standby.RelayConfig{
		Next: sink.Publisher, Room: sink.Room,
		History: func() (resource.Version, int, bool) { return p.informer.History() },
	})}
	p.relays = append(p.relays, r)
	return r
}

// Relays must not be changed.
func (p *Pipeline) Relays() []*Relay { return p.relays }

// SinkKeys are the keys of the sinks that it sends to, sorted, never nil.
func (p *Pipeline) SinkKeys() []string {
	keys := make([]string, 0, len(p.relays))
	for _, relay := range p.relays {
		keys = append(keys, relay.SinkKey)
	}
	slices.Sort(keys)
	return keys
}

// Adopt takes over from the leader's progress how often the server's history went back and how
// often the selection changed, when the pipeline knows nothing itself. Call it before Begin.
func (p *Pipeline) Adopt(progress *standby.Unit) error {
	return errors.Join(p.adoptEpoch(progress.Epoch), p.indexer.AdoptSelection(progress.Selectors))
}

func (p *Pipeline) adoptEpoch(number int) error {
	empty, err := p.indexer.Empty()
	if err != nil || !empty || p.informer.Log().Status().Watermark != "" {
		return err
	}
	own, err := p.indexer.Epoch()
	if err != nil || own.Open || own.Number >= number {
		return err
	}
	return p.indexer.AdoptEpoch(number)
}

// History is the version since which the pipeline has seen everything, in an epoch of the server's
// history. ok is false while a list is under way, and before the first.
func (p *Pipeline) History() (from resource.Version, epoch int, ok bool) { return p.informer.History() }

// Selectors is how often another selector of namespaces was configured.
func (p *Pipeline) Selectors() int { return p.indexer.Selection() }
