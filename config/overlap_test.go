package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

func TestOverlap(t *testing.T) {
	const kafka = `kafka: {brokers: ["k:9092"]}`
	load := func(first, second, sinks string) []*config.Problem {
		t.Helper()
		return config.Problems(loadText(fmt.Sprintf("informers:\n  - {name: one, %s}\n  - {name: two, %s}\nsinks:\n%s", first, second, sinks)))
	}
	one := func(sink string) string { return "  - {name: s, " + sink + "}\n" }
	pods := func(rest string) string { return "resources: [pods], " + rest }
	plain, patch := pods("sinks: [{name: s}]"), pods("sinks: [{name: s, payload: patch}]")

	for name, c := range map[string]struct{ first, second, sinks, differs, remedy string }{
		"another payload":           {plain, patch, one(kafka), "payload", "kafka.topic"},
		"in a stream":               {plain, patch, one("nats: {}"), "payload", "nats.stream.name"},
		"other types":               {plain, pods("sinks: [{name: s, types: knative}]"), one(kafka), "types", "{informer}"},
		"paths that are cut out":    {plain, pods("drop: [spec], sinks: [{name: s}]"), one(kafka), "drop", "{informer}"},
		"managed fields":            {plain, pods("keepManagedFields: true, sinks: [{name: s}]"), one(kafka), "keepManagedFields", "{informer}"},
		"attributes of one's own":   {plain, pods("attributes: {team: metadata.labels.team}, sinks: [{name: s}]"), one(kafka), "attributes", "{informer}"},
		"all resources and one":     {`resources: ["*"], sinks: [{name: s}]`, patch, one(kafka), "payload", "pods"},
		"a group and one of it":     {`resources: ["*.apps"], sinks: [{name: s}]`, `resources: [deployments.apps], sinks: [{name: s, payload: patch}]`, one(kafka), "payload", "deployments.apps"},
		"a namespace and all":       {pods("namespaces: [shop], sinks: [{name: s}]"), patch, one(kafka), "payload", "{informer}"},
		"a selector and none":       {pods("labelSelector: a=b, sinks: [{name: s}]"), patch, one(kafka), "payload", "{informer}"},
		"two sinks with one topic":  {pods("sinks: [{name: s}]"), pods("sinks: [{name: t, payload: patch}]"), one(kafka) + "  - {name: t, " + kafka + "}\n", "payload", "sink s"},
		"two sinks with one stream": {pods("sinks: [{name: s}]"), pods("sinks: [{name: t, payload: patch}]"), one("nats: {}") + "  - {name: t, nats: {}}\n", "payload", "sink s"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			problems := load(c.first, c.second, c.sinks)
			if len(problems) != 1 || problems[0].Path != "informers[1].sinks[0]" {
				t.Fatalf("got %v", problems)
			}
			for _, want := range []string{"informer one", "another " + c.differs, c.remedy} {
				if !strings.Contains(problems[0].Error(), want) {
					t.Errorf("%v\ndoes not say %q", problems[0], want)
				}
			}
		})
	}
	for name, c := range map[string]struct{ first, second, sinks string }{
		"the same content":             {plain, plain, one(kafka)},
		"other resources":              {plain, "resources: [nodes], sinks: [{name: s, payload: patch}]", one(kafka)},
		"excluded":                     {`resources: ["*"], exclude: [pods], sinks: [{name: s}]`, patch, one(kafka)},
		"other namespaces":             {pods("namespaces: [a], sinks: [{name: s}]"), pods("namespaces: [b], sinks: [{name: s, payload: patch}]"), one(kafka)},
		"other labels":                 {pods("labelSelector: a=b, sinks: [{name: s}]"), pods("labelSelector: a=c, sinks: [{name: s, payload: patch}]"), one(kafka)},
		"topics by informer":           {plain, patch, one(`kafka: {brokers: ["k:9092"], topic: "k8s.{informer}.{resource}"}`)},
		"core NATS keeps nothing":      {plain, patch, one("nats: {mode: core}")},
		"standard output keeps none":   {plain, patch, one("stdout: {}")},
		"other topics":                 {pods("sinks: [{name: s}]"), pods("sinks: [{name: t, payload: patch}]"), one(kafka) + `  - {name: t, kafka: {brokers: ["k:9092"], topic: "other.{resource}"}}` + "\n"},
		"another group of a like name": {`resources: [services], sinks: [{name: s}]`, `resources: [services.serving.knative.dev], sinks: [{name: s, payload: patch}]`, one(kafka)},
	} {
		t.Run(name+" is accepted", func(t *testing.T) {
			if problems := load(c.first, c.second, c.sinks); len(problems) > 0 {
				t.Errorf("%v", problems)
			}
		})
	}
}
