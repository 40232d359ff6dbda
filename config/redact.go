package config

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// String is the whole configuration as YAML, with defaults filled in, secrets masked, and variables
// as references. But for the secrets it can be read again: what is not there, or has no effect
// beside another setting, is left out.
func (c *Config) String() string {
	doc, err := c.origins.Node(c)
	if err != nil {
		return "configuration: " + err.Error()
	}
	sinks := member(doc, "sinks")
	for i := range c.Sinks {
		sink := &c.Sinks[i]
		if sink.Stdout != nil || sink.History != nil {
			drop(sinks.Content[i], "encoding")
		}
		if sink.NATS != nil && sink.NATS.Mode == "core" {
			nats := member(sinks.Content[i], "nats")
			drop(nats, "stream")
			drop(nats, "objects")
		}
		if sink.NATS != nil && sink.isView() {
			nats := member(sinks.Content[i], "nats")
			drop(nats, "subject")
			drop(nats, "deadLetterSubject")
			for _, key := range bucketSettings {
				drop(member(nats, "stream"), key)
			}
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(doc); err != nil {
		return "configuration: " + err.Error()
	}
	return out.String()
}

// member is the value of a key, nil when it is not there.
func member(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// drop takes a key out.
func drop(n *yaml.Node, key string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content = append(n.Content[:i], n.Content[i+2:]...)
			return
		}
	}
}
