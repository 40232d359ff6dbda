package config

import (
	"fmt"
	"strings"
)

// validateCompacted refuses payloads that a compacted topic loses. Such a topic keeps the last record
// of each key only, and a record without a value deletes the key.
func (c *Config) validateCompacted(ps *problems) {
	for i := range c.Informers {
		for j := range c.Informers[i].Sinks {
			b := &c.Informers[i].Sinks[j]
			sink := c.sink(b.Name)
			if sink == nil || sink.Kafka == nil || !sink.Kafka.compacted() {
				continue
			}
			path := fmt.Sprintf("informers[%d].sinks[%d].payload", i, j)
			binary := sink.Encoding != "structured"
			switch {
			case b.Payload == "reference" && b.Types != "knative" && binary:
				ps.add(path, "reference has no data, and in the compacted topic of sink %s a record without a value "+
					"deletes the object's key: use payload: metadata, or encoding: structured on the sink", b.Name)
			case b.Payload == "patch":
				ps.add(path, "the compacted topic of sink %s keeps the last record of an object only, and a patch alone "+
					"says nothing: use payload: object, or cleanup.policy: delete without tombstones", b.Name)
			}
		}
	}
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
