package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// validateOverlap refuses two informers that send one object to one Kafka topic or NATS stream with
// different contents. An event's id says which change of which object it is. CloudEvents lets
// consumers take two events with one source and id for the same event, so they would keep either.
func (c *Config) validateOverlap(ps *problems) {
	for i := range c.Informers {
		for j := range i {
			c.validateOverlapOf(ps, j, i)
		}
	}
}

func (c *Config) validateOverlapOf(ps *problems, first, second int) {
	a, b := &c.Informers[first], &c.Informers[second]
	shared := a.sharedResource(b)
	if shared == "" || ps.within(fmt.Sprintf("informers[%d]", first)) || ps.within(fmt.Sprintf("informers[%d]", second)) {
		return
	}
	for i := range b.Sinks {
		for j := range a.Sinks {
			place := c.sharedPlace(a.Sinks[j].Name, b.Sinks[i].Name)
			what := differs(a, b, &a.Sinks[j], &b.Sinks[i])
			if place == "" || what == "" {
				continue
			}
			ps.add(fmt.Sprintf("informers[%d].sinks[%d]", second, i),
				"informer %s sends %s to sink %s too, with another %s: one id would have two contents; "+
					"give both the same %s, let them select different objects, or write {informer} into %s",
				a.Name, shared, a.Sinks[j].Name, what, what, place)
			return
		}
	}
}

// differs returns the key by which two informers make different contents of an object, "" for none.
func differs(a, b *Informer, toA, toB *Binding) string {
	switch {
	case toA.Payload != toB.Payload:
		return "payload"
	case toA.Types != toB.Types:
		return "types"
	case a.Secrets != b.Secrets:
		return "secrets"
	case !sameSet(a.Redact, b.Redact):
		return "redact"
	case !sameSet(a.Drop, b.Drop):
		return "drop"
	case a.RedactEnv != b.RedactEnv:
		return "redactEnv"
	case a.KeepManagedFields != b.KeepManagedFields:
		return "keepManagedFields"
	case a.Owners != b.Owners:
		return "owners"
	case !maps.Equal(a.Attributes, b.Attributes):
		return "attributes"
	default:
		return ""
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// sharedPlace returns the key that names the topic or stream that two sinks have in common, ""
// where they have none for sure. Standard output and core NATS keep nothing that could be taken for
// a repeat.
func (c *Config) sharedPlace(nameA, nameB string) string {
	a, b := c.sink(nameA), c.sink(nameB)
	switch {
	case a == nil || b == nil:
		return ""
	case a.Kafka != nil && b.Kafka != nil:
		same := a == b || a.Kafka.Topic == b.Kafka.Topic && slices.ContainsFunc(a.Kafka.Brokers, func(broker string) bool {
			return slices.Contains(b.Kafka.Brokers, broker)
		})
		if same && !strings.Contains(a.Kafka.Topic, "{informer}") {
			return "kafka.topic"
		}
	case a.NATS != nil && b.NATS != nil && a.NATS.Mode != "core" && b.NATS.Mode != "core":
		same := a == b || a.NATS.sameServer(b.NATS) && a.NATS.Stream.Name == b.NATS.Stream.Name
		if same && !strings.Contains(a.NATS.Stream.Name, "{informer}") {
			return "nats.stream.name and nats.subject"
		}
	}
	return ""
}

// sharedResource returns a resource of which two informers select the same objects, "" where they
// do not for sure: short names and versions are not compared, and other selectors may divide the
// objects.
func (inf *Informer) sharedResource(other *Informer) string {
	divided := len(inf.Namespaces) > 0 && len(other.Namespaces) > 0 &&
		!slices.ContainsFunc(inf.Namespaces, func(n string) bool { return slices.Contains(other.Namespaces, n) })
	for _, pair := range [][2]string{
		{inf.LabelSelector, other.LabelSelector},
		{inf.FieldSelector, other.FieldSelector},
		{inf.NamespaceSelector, other.NamespaceSelector},
		{inf.Filter, other.Filter},
	} {
		divided = divided || pair[0] != pair[1] && pair[0] != "" && pair[1] != ""
	}
	if divided {
		return ""
	}
	for _, a := range inf.Resources {
		for _, b := range other.Resources {
			name := sharedName(a, b)
			if name != "" && !slices.Contains(inf.Exclude, name) && !slices.Contains(other.Exclude, name) {
				return name
			}
		}
	}
	return ""
}

// sharedName returns the narrower of two names of resources of which one holds the other, else "".
func sharedName(a, b string) string {
	holds := func(wide, narrow string) bool {
		group, ok := strings.CutPrefix(wide, "*")
		return wide == narrow || ok && strings.HasSuffix(narrow, group)
	}
	switch {
	case holds(a, b):
		return b
	case holds(b, a):
		return a
	default:
		return ""
	}
}
