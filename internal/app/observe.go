package app

import (
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/publisher/tail"
	"github.com/kubebridge/bridge/internal/publisher/tracing"
)

// observe shows what is settled in the live tail and, where the configuration asks for it, sends it
// as spans to a collector of traces.
func (a *assembler) observe(hub *tail.Hub, version string) (err error) {
	a.onSettle = hub.Settled
	c := a.config.Tracing
	if c.Endpoint == "" {
		return nil
	}
	a.tracer, err = tracing.New(tracing.Config{
		Endpoint: c.Endpoint, Sample: c.SampleRatio, Version: version, Log: a.log,
		Registerer: a.registry,
	})
	a.onSettle = func(sink string, settled []*publisher.Item) {
		hub.Settled(sink, settled)
		a.tracer.Settled(sink, settled)
	}
	return err
}
