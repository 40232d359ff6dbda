package config

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// String is the whole configuration as YAML, with defaults filled in, secrets masked, and variables
// as references. But for the secrets it can be read again: what is not there, or has no effect
// beside another setting, is left out.
func (c *Config) String() string {
	var doc yaml.Node
	if err := doc.Encode(c); err != nil {
		return "configuration: " + err.Error()
	}
	c.origins.restoreReferences(&doc, "")
	dropAbsent(&doc)
	sinks := member(&doc, "sinks")
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
	if err := encoder.Encode(&doc); err != nil {
		return "configuration: " + err.Error()
	}
	return out.String()
}

// restoreReferences writes values that came from variables as the file has them: ${NAME}. A secret
// that is a variable as a whole is shown as that too. Text around a variable may be a part of the
// secret, so then it stays masked.
func (o origins) restoreReferences(n *yaml.Node, path string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			o.restoreReferences(n.Content[i+1], join(path, n.Content[i].Value))
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			o.restoreReferences(item, fmt.Sprintf("%s[%d]", path, i))
		}
	case yaml.ScalarNode:
		from := o[path]
		masked := strings.Contains(n.Value, Masked) && onlyVariable.MatchString(from.reference)
		if from.value != "" && (n.Value == from.value || masked) {
			n.SetString(from.reference)
		}
	}
}

var onlyVariable = regexp.MustCompile(`^\$\{\w+\}$`)

// dropAbsent takes the sections out that are not there: a reader takes the name alone for one with
// defaults.
func dropAbsent(n *yaml.Node) {
	kept := n.Content[:0]
	for i := 0; i < len(n.Content); i++ {
		if n.Kind == yaml.MappingNode {
			key, value := n.Content[i], n.Content[i+1]
			i++
			if isNull(value) {
				continue
			}
			kept = append(kept, key)
		}
		dropAbsent(n.Content[i])
		kept = append(kept, n.Content[i])
	}
	n.Content = kept
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
