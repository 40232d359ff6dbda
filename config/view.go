package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/kubebridge/bridge/internal/settings"
)

// A view is a sink that holds the newest state of each object that exists, and nothing else: a
// key-value bucket, or a compacted topic.

// fillBucket sets what follows from the name of a bucket.
func (n *NATS) fillBucket() {
	if n != nil && n.Mode == "kv" && bucketName.MatchString(n.Bucket) {
		n.Stream.Name = "KV_" + n.Bucket
		n.Subject = "$KV." + n.Bucket + ".{group}.{resource}.{namespace}.{name}"
	}
}

const cleanupPolicy = "cleanup.policy"

// fillView sets what a compacted topic needs.
func (k *Kafka) fillView(path string, given settings.Origins) {
	if k == nil || !k.View {
		return
	}
	if _, ok := given[path+".tombstones"]; !ok {
		k.Tombstones = true
	}
	if k.CreateTopics == nil {
		k.CreateTopics = &CreateTopics{}
	}
	if k.CreateTopics.Config[cleanupPolicy] == "" {
		topic := map[string]string{}
		maps.Copy(topic, k.CreateTopics.Config)
		topic[cleanupPolicy] = "compact"
		k.CreateTopics.Config = topic
	}
}

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

// isView reports whether the sink is a view.
func (s *Sink) isView() bool {
	return s.NATS != nil && s.NATS.Mode == "kv" || s.Kafka != nil && s.Kafka.View
}

// KeepsNewest reports whether the destination keeps only what came last of an object, as far as the
// configuration says so: an older version that comes late would replace a newer one.
func (s *Sink) KeepsNewest() bool {
	return s.isView() || s.Kafka != nil && s.Kafka.compacted()
}

// validateView refuses what contradicts a view.
func (k *Kafka) validateView(ps *settings.Report, path string) {
	if !k.View {
		return
	}
	if !k.Tombstones {
		ps.Add(path+".tombstones", "false contradicts view: a deleted object would stay in the "+
			"topic. Leave it out")
	}
	if policy := k.CreateTopics.Config[cleanupPolicy]; policy != "compact" {
		ps.Add(path+".createTopics", "cleanup.policy %s contradicts view, which needs compact: objects "+
			"that do not change would vanish. Leave it out", policy)
	}
}

var bucketName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// bucketSettings are those of a stream that follow from mode kv.
var bucketSettings = []string{
	"name", "maxStreams", "subjects", "maxAge", "maxMsgsPerSubject", "denyDelete", "denyPurge",
}

// validateBucket refuses settings that follow from the mode.
func (n *NATS) validateBucket(ps *settings.Report, path string) {
	if n.Mode != "kv" {
		if n.Bucket != "" {
			ps.Add(path+".bucket", "has no effect without mode: kv")
		}
		return
	}
	switch {
	case n.Bucket == "":
		ps.Add(path+".bucket", "required with mode kv: the name of the bucket, such as K8S")
	case !bucketName.MatchString(n.Bucket):
		ps.Add(path+".bucket", "want letters, digits, dashes and underscores, got %q", n.Bucket)
	}
	follow := []string{"subject", "deadLetterSubject"}
	for _, key := range bucketSettings {
		follow = append(follow, "stream."+key)
	}
	for _, key := range follow {
		if ps.Origins.Given(path + "." + key) {
			ps.Add(path+"."+key, "has no effect with mode kv: leave it out")
		}
	}
	if n.Stream.Manage == "off" {
		ps.Add(path+".stream.manage", "off is not for mode kv, which reads the bucket: take verify")
	}
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
		a.NATS.sameServer(b.NATS) &&
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
