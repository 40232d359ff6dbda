package config

import (
	"fmt"
	"strings"

	"github.com/kubebridge/bridge/internal/settings"
)

// validatePayloads refuses payloads that a sink can't send, or that a compacted topic loses. Such a
// topic keeps the last record of each key only, and a record without a value deletes the key.
func (c *Config) validatePayloads(ps *settings.Report) {
	for i := range c.Informers {
		for j := range c.Informers[i].Sinks {
			b := &c.Informers[i].Sinks[j]
			sink := c.sink(b.Name)
			if sink != nil && b.Payload == "debezium" && sink.Encoding == "structured" {
				ps.Add(fmt.Sprintf("informers[%d].sinks[%d].payload", i, j),
					"with encoding: structured on sink %s "+
						"the message is a CloudEvent, which no engine takes for debezium-json: use encoding: binary",
					b.Name)
			}
			if sink == nil || sink.Kafka == nil || !sink.Kafka.compacted() || sink.isView() {
				continue
			}
			if lost := b.lostByCompaction(sink); lost != "" {
				ps.Add(fmt.Sprintf("informers[%d].sinks[%d].payload", i, j),
					"the topic of sink %s is compacted, and %s", b.Name, lost)
			}
		}
	}
}

// lostByCompaction says what a compacted topic loses of a binding's events, and what to do; "" for
// nothing.
func (b *Binding) lostByCompaction(sink *Sink) string {
	switch {
	case b.Payload == "reference" && b.Types != "knative" && sink.Encoding != "structured":
		return "payload reference has no data: the record of an object says nothing of it. " +
			"Use payload: metadata, or encoding: structured on the sink"
	case b.Payload == "debezium" && b.Progress > 0:
		return "in this form events about an informer have no value: a progress event deletes itself. " +
			"Leave progress out, or use cleanup.policy: delete without tombstones"
	case b.Payload == "patch":
		return "only the last record of an object is kept: a patch alone says nothing. " +
			"Use payload: object, or cleanup.policy: delete without tombstones"
	default:
		return ""
	}
}

// LostByCompaction says what a topic of a sink that turns out to be compacted loses of its events,
// and what to do; "" for nothing. The configuration need not know that the topic is compacted.
func (c *Config) LostByCompaction(sink string) string {
	for i := range c.Informers {
		for j := range c.Informers[i].Sinks {
			b := &c.Informers[i].Sinks[j]
			if s := c.sink(sink); b.Name == sink && s != nil && s.Kafka != nil {
				if lost := b.lostByCompaction(s); lost != "" {
					return "of informer " + c.Informers[i].Name + ": " + lost
				}
			}
		}
	}
	return ""
}

// sink returns the sink of a name, nil for none.
func (c *Config) sink(name string) *Sink {
	for i := range c.Sinks {
		if c.Sinks[i].Name == name {
			return &c.Sinks[i]
		}
	}
	return nil
}

// compacted reports whether the topics are compacted, as far as the configuration says so.
func (k *Kafka) compacted() bool {
	return k.Tombstones ||
		k.CreateTopics != nil && strings.Contains(k.CreateTopics.Config["cleanup.policy"], "compact")
}
