package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// validateStreams refuses two sinks that get events of one informer in one stream. A message's id
// says of which informer and event it is, not of which sink: the stream would take the second
// sink's for duplicates of the first one's. Where the servers or the accounts are called by other
// names, the sinks find it when they are opened.
func (c *Config) validateStreams(ps *settings.Report) {
	for i := range c.Sinks {
		path := fmt.Sprintf("sinks[%d].nats.stream.name", i)
		for j := range i {
			informer := c.sharedStream(&c.Sinks[j], &c.Sinks[i])
			if informer == "" || ps.Has(path) {
				continue
			}
			ps.Add(path, "%q is a stream of sinks[%d] (%s) too, and informer %s feeds both: a stream "+
				"takes each event once, so the second sink's would be dropped; "+
				"give this one a stream of its own, as nats.stream.name: %s, and with nats.subject subjects "+
				"that do not overlap with those of %s",
				c.Sinks[i].NATS.Stream.Name, j, c.Sinks[j].Name, informer, ownStream(&c.Sinks[i]),
				c.Sinks[j].Name)
		}
	}
}

// ownStream is a name for the stream of a sink.
func ownStream(s *Sink) string {
	return s.NATS.Stream.Name + "-" + strings.ToUpper(s.Name)
}

// sharedStream is an informer whose events two sinks would put into one stream; "" for none.
func (c *Config) sharedStream(a, b *Sink) string {
	if a.NATS == nil || b.NATS == nil || a.Name == b.Name || !a.NATS.SameServer(b.NATS) ||
		sameBucket(a, b) {
		return ""
	}
	for i := range c.Informers {
		inf := &c.Informers[i]
		feeds := func(s *Sink) bool {
			return slices.ContainsFunc(inf.Sinks, func(b Binding) bool { return b.Name == s.Name })
		}
		if feeds(a) && feeds(b) && canBeEqual(c.streamTokens(a, inf), c.streamTokens(b, inf)) {
			return inf.Name
		}
	}
	return ""
}

// streamTokens is the name of a sink's streams for events of an informer: characters, and fields
// whose values are not known.
func (c *Config) streamTokens(s *Sink, inf *Informer) (tokens []string) {
	known := []string{"{informer}", string(event.AppendSubjectToken(nil, inf.Name))}
	if c.Cluster != "" {
		known = append(known, "{cluster}", string(event.AppendSubjectToken(nil, c.Cluster)))
	}
	name := strings.NewReplacer(known...).Replace(s.NATS.Stream.Name)
	for name != "" {
		n := 1
		if name[0] == '{' {
			n = max(strings.IndexByte(name, '}')+1, 1)
		}
		tokens, name = append(tokens, name[:n]), name[n:]
	}
	return tokens
}

// canBeEqual reports whether two names can be the same for one event. A field that both begin or
// end with has one value then.
func canBeEqual(a, b []string) bool {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	width := len(b) + 1
	// whether what is left of a from i can equal what is left of b from j
	table := make([]bool, (len(a)+1)*width)
	for i := len(a); i >= 0; i-- {
		for j := len(b); j >= 0; j-- {
			table[i*width+j] = canBeEqualFrom(a[i:], b[j:],
				func(i2, j2 int) bool { return table[(i+i2)*width+j+j2] })
		}
	}
	return table[0]
}

// canBeEqualFrom says so of what is left, by what is known of less. A field takes one character or
// more.
func canBeEqualFrom(a, b []string, less func(i, j int) bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	fieldA, fieldB := len(a[0]) > 1, len(b[0]) > 1
	return (a[0] == b[0] || fieldA || fieldB) && less(1, 1) || fieldA && less(0, 1) ||
		fieldB && less(1, 0)
}

// validatePayloads refuses payloads that a sink can't send, or that a compacted topic loses. Such a
// topic keeps the last record of each key only, and a record without a value deletes the key.
func (c *Config) validatePayloads(ps *settings.Report) {
	for i := range c.Informers {
		for j := range c.Informers[i].Sinks {
			b := &c.Informers[i].Sinks[j]
			sink := c.sink(b.Name)
			if sink != nil && b.Payload == "debezium" && sink.Encoding != sinks.Binary {
				ps.Add(fmt.Sprintf("informers[%d].sinks[%d].payload", i, j),
					"with encoding: %s on sink %s "+
						"the message is an event, which no engine takes for debezium-json: use encoding: binary",
					sink.Encoding, b.Name)
			}
			if sink == nil || sink.Kafka == nil || !sink.Kafka.Compacted() || sink.isView() {
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
	case b.Payload == "reference" && b.Types != "knative" && sink.Encoding == sinks.Binary:
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

// A view is a sink that holds the newest state of each object that exists, and nothing else: a
// key-value bucket, or a compacted topic.

// fillViews has views sent the newest states, unless the binding says otherwise.
func (c *Config) fillViews(path string, inf *Informer) {
	for i := range inf.Sinks {
		b := &inf.Sinks[i]
		_, given := c.origins[fmt.Sprintf("%s[%d].delivery", path, i)]
		if sink := c.sink(b.Name); sink != nil && sink.Kafka != nil && sink.Kafka.View && !given {
			b.Delivery = "latest"
		}
	}
}

func (s *Sink) isView() bool {
	return s.NATS != nil && s.NATS.Mode == "kv" || s.Kafka != nil && s.Kafka.View
}

// KeepsNewest reports whether the destination keeps only what came last of an object, as far as the
// configuration says so: an older version that comes late would replace a newer one.
func (s *Sink) KeepsNewest() bool {
	return s.isView() || s.Kafka != nil && s.Kafka.Compacted()
}

// validateViews refuses what would let a view differ from the cluster permanently.
func (c *Config) validateViews(ps *settings.Report) {
	for i := range c.Sinks {
		for j := range i {
			if sameBucket(&c.Sinks[j], &c.Sinks[i]) {
				ps.Add(fmt.Sprintf("sinks[%d].nats.bucket", i),
					"%q is the bucket of sinks[%d] (%s) too: each would "+
						"delete what the other has; give this one a bucket of its own",
					c.Sinks[i].NATS.Bucket, j, c.Sinks[j].Name)
			}
		}
	}
	for i := range c.Informers {
		for j, b := range c.Informers[i].Sinks {
			if sink := c.sink(b.Name); sink != nil && sink.isView() {
				c.validateView(ps, i, j)
			}
		}
	}
}

func sameBucket(a, b *Sink) bool {
	return a.NATS != nil && b.NATS != nil && a.isView() && b.isView() && a.Name != b.Name &&
		a.NATS.SameServer(b.NATS) &&
		a.NATS.Bucket == b.NATS.Bucket && a.NATS.Bucket != ""
}

// validateView checks what an informer sends to a view.
func (c *Config) validateView(ps *settings.Report, i, j int) {
	inf, informer := &c.Informers[i], fmt.Sprintf("informers[%d]", i)
	b, binding := &inf.Sinks[j], fmt.Sprintf("%s.sinks[%d]", informer, j)
	view := "sink " + b.Name + " holds the newest state of each object"
	if b.Payload == "patch" || b.Payload == "reference" || b.Payload == "debezium" {
		ps.Add(binding+".payload", "%s, and payload %s is none. Use payload: object", view, b.Payload)
	}
	if b.Delivery == "history" && c.sink(b.Name).Kafka != nil {
		ps.Add(binding+".delivery", "%s, and a compacted topic keeps no history. Leave it out", view)
	}
	const remedy = "Select objects with labelSelector, fieldSelector, namespaces or namespaceSelector"
	for path, filter := range map[string]string{
		informer + ".filter": inf.Filter, binding + ".filter": b.Filter,
	} {
		if filter != "" {
			ps.Add(path, "%s: one whose change is kept back would stay as it was. %s", view, remedy)
		}
	}
	for path, operations := range map[string][]string{
		informer + ".operations": inf.Operations, binding + ".operations": b.Operations,
	} {
		for _, op := range []string{"added", "updated", "deleted"} {
			if len(operations) > 0 && !slices.Contains(operations, op) {
				ps.Add(path, "%s, so it takes added, updated and deleted. Leave the key out", view)
				break
			}
		}
	}
	if inf.Snapshot == "never" {
		ps.Add(informer+".snapshot", "%s, and never leaves out those that exist. Use snapshot: initial",
			view)
	}
	if inf.Queue.WhenFull == "drop-oldest" {
		ps.Add(informer+".queue.whenFull",
			"%s: one whose change is dropped would stay as it was. Use whenFull: block", view)
	}
	for k := range i {
		other := &c.Informers[k]
		feeds := slices.ContainsFunc(other.Sinks, func(o Binding) bool { return o.Name == b.Name })
		apart := c.sharedPlace(b.Name, b.Name, false) == ""
		if shared := other.sharedResource(inf); feeds && shared != "" && !apart {
			ps.Add(binding, "informer %s sends %s to %s too: one object would have two states there. "+
				"Let them select other objects, or take a second sink", other.Name, shared, b.Name)
		}
	}
}
