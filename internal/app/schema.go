package app

import (
	"maps"
	"slices"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/sinkmaker"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
)

// Schema describes what a configuration publishes, as an AsyncAPI document. It contacts nobody.
func Schema(c *config.Config) map[string]any {
	var list []asyncapi.Sink
	for i := range c.Sinks {
		s := &c.Sinks[i]
		d := sinkmaker.Describe(s)
		if d == nil {
			continue
		}
		d.Name = s.Name
		d.Structured = d.Structured || s.Encoding == "structured"
		d.Oversize = d.Oversize && len(s.Oversize) > 0
		for j := range c.Informers {
			d.Streams = append(d.Streams, streamsOf(&c.Informers[j], s.Name)...)
		}
		if len(d.Streams) > 0 {
			list = append(list, *d)
		}
	}
	return asyncapi.Document(c.Cluster, list)
}

// streamsOf are what an informer sends to a sink.
func streamsOf(inf *config.Informer, sink string) (list []asyncapi.Stream) {
	for i := range inf.Sinks {
		b := &inf.Sinks[i]
		if b.Name != sink {
			continue
		}
		stream := asyncapi.Stream{
			Informer: inf.Name, Payload: event.Payload(b.Payload), Types: event.Types(b.Types),
			Progress:   b.Progress > 0,
			Attributes: slices.Sorted(maps.Keys(inf.Attributes)), Owners: inf.Owners,
		}
		for _, op := range []event.Op{event.Added, event.Updated, event.Deleted, event.Synced} {
			if allows(inf.Operations, op) && allows(b.Operations, op) {
				stream.Ops = append(stream.Ops, op)
			}
		}
		list = append(list, stream)
	}
	return list
}

func allows(operations []string, op event.Op) bool {
	return len(operations) == 0 || slices.Contains(operations, string(op))
}
