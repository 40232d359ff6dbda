package config

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
)

// Default is the configuration of `bridge run` without a file: every resource but Leases and
// Events, into an embedded NATS JetStream server on 127.0.0.1:4222, and into a history of a week in
// the state directory. Leases are heartbeats, and Events report changes that are in the stream
// anyway.
func Default() *Config {
	c := base()
	c.fillDefaults()
	return c
}

// base is the default before what is left out in its informers and sinks is filled in.
func base() *Config {
	c := &Config{
		Informers: []Informer{{
			Name:      "all",
			Resources: []string{"*"},
			Exclude:   []string{"leases.coordination.k8s.io", "events", "events.events.k8s.io"},
		}},
		Sinks: []Sink{
			{Name: "nats", NATS: &NATS{Embedded: true}},
			{Name: "history", History: &History{Retention: 7 * 24 * time.Hour, MaxBytes: 1 << 30}},
		},
		origins: settings.Origins{},
	}
	settings.Fill(reflect.ValueOf(c).Elem(), "", settings.Origins{}, false)
	return c
}

// fillDefaults gives every key of informers and sinks that was not given its default.
func (c *Config) fillDefaults() {
	settings.Fill(reflect.ValueOf(c).Elem(), "", c.origins, true)
	c.fillHTTP()
	for i := range c.Sinks {
		c.Sinks[i].NATS.fillBucket()
		c.Sinks[i].Kafka.fillView(fmt.Sprintf("sinks[%d].kafka", i), c.origins)
	}
	for i := range c.Informers {
		c.Informers[i].fillBindings(c.Sinks)
		c.fillViews(fmt.Sprintf("informers[%d].sinks", i), &c.Informers[i])
		c.Informers[i].fillInherited(fmt.Sprintf("informers[%d].sinks", i), c.origins)
	}
}

// fillBindings sends an informer that names no sinks to all of them.
func (inf *Informer) fillBindings(sinks []Sink) {
	if inf.Sinks != nil {
		return
	}
	for i, s := range sinks {
		if slices.ContainsFunc(sinks[:i], func(other Sink) bool { return other.Name == s.Name }) {
			continue // a mistake that is reported once, at the sink
		}
		inf.Sinks = append(inf.Sinks, Binding{Name: s.Name, Payload: "object", Types: "bridge"})
	}
}

// fillInherited gives bindings what they leave to their informer. What is wrong there is reported
// there.
func (inf *Informer) fillInherited(path string, given settings.Origins) {
	for i := range inf.Sinks {
		b, at := &inf.Sinks[i], fmt.Sprintf("%s[%d]", path, i)
		if _, ok := given[at+".delivery"]; !ok && b.Delivery == "" {
			b.Delivery = "history"
			if inf.Delivery == "latest" {
				b.Delivery = inf.Delivery
			}
		}
		if _, ok := given[at+".resync"]; !ok && b.Resync == 0 {
			b.Resync = max(inf.Resync, 0)
		}
	}
}
