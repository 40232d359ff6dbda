package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/settings"
)

func TestOverlap(t *testing.T) {
	const kafka = `kafka: {brokers: ["k:9092"]}`
	load := func(first, second, sinks string) []*settings.Problem {
		t.Helper()
		return settings.Problems(loadText(fmt.Sprintf("informers:\n  - {name: one, %s}\n  - {name: two, %s}\nsinks:\n%s", first, second, sinks)))
	}
	one := func(sink string) string { return "  - {name: s, " + sink + "}\n" }
	pods := func(rest string) string { return "resources: [pods], " + rest }
	plain, patch := pods("sinks: [{name: s}]"), pods("sinks: [{name: s, payload: patch}]")

	topicByInformer := one(`kafka: {brokers: ["k:9092"], topic: "k8s.{informer}.{resource}"}`)
	two := func(sink string) string { return one(sink) + "  - {name: t, " + sink + "}\n" }
	selected := func(key, selector string) string { return pods(key + ": " + selector + ", sinks: [{name: s}]") }

	for name, c := range map[string]struct{ first, second, sinks, remedy string }{
		"another payload":            {plain, patch, one(kafka), "kafka.topic"},
		"the same payload":           {plain, plain, one(kafka), "kafka.topic"},
		"in a stream":                {plain, patch, one("nats: {}"), "nats.subject"},
		"all resources and one":      {`resources: ["*"], sinks: [{name: s}]`, patch, one(kafka), "sends pods"},
		"a group and one of it":      {`resources: ["*.apps"], sinks: [{name: s}]`, `resources: [deployments.apps], sinks: [{name: s}]`, one(kafka), "deployments.apps"},
		"a short name":               {plain, `resources: [po], sinks: [{name: s}]`, one(kafka), "sends pods"},
		"a name with a version":      {plain, `resources: [pods.v1], sinks: [{name: s}]`, one(kafka), "sends pods"},
		"versions of a group":        {`resources: [cronjobs.v1beta1.batch], sinks: [{name: s}]`, `resources: [cj.batch], sinks: [{name: s}]`, one(kafka), "cronjobs.batch"},
		"a namespace and all":        {pods("namespaces: [shop], sinks: [{name: s}]"), patch, one(kafka), "{informer}"},
		"a selector and none":        {selected("labelSelector", "a=b"), plain, one(kafka), "{informer}"},
		"selectors of other labels":  {selected("labelSelector", "a=b"), selected("labelSelector", "c=d"), one(kafka), "{informer}"},
		"sets that overlap":          {selected("labelSelector", "'a in (b, c)'"), selected("labelSelector", "a=b"), one(kafka), "{informer}"},
		"fields that overlap":        {selected("fieldSelector", "spec.nodeName=a"), selected("fieldSelector", "spec.nodeName!=b"), one(kafka), "{informer}"},
		"two sinks with one topic":   {plain, pods("sinks: [{name: t, payload: patch}]"), two(kafka), "sink s"},
		"two sinks with one stream":  {plain, pods("sinks: [{name: t, payload: patch}]"), two("nats: {}"), "sink s"},
		"namespaces that both match": {selected("namespaceSelector", "a"), selected("namespaceSelector", "a=b"), one(kafka), "{informer}"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			problems := load(c.first, c.second, c.sinks)
			if len(problems) != 1 || problems[0].Path != "informers[1].sinks[0]" {
				t.Fatalf("got %v", problems)
			}
			for _, want := range []string{"informer one", "two contents", c.remedy} {
				if !strings.Contains(problems[0].Error(), want) {
					t.Errorf("%v\ndoes not say %q", problems[0], want)
				}
			}
		})
	}
	t.Run("one informer with two sinks of one topic is refused", func(t *testing.T) {
		problems := load(pods("sinks: [{name: s}, {name: t, payload: patch}]"), "resources: [nodes], sinks: [{name: s}]", two(kafka))
		if len(problems) != 1 || problems[0].Path != "informers[0].sinks[1]" || !strings.Contains(problems[0].Error(), "sink s too") {
			t.Errorf("got %v", problems)
		}
	})
	for name, c := range map[string]struct{ first, second, sinks string }{
		"other resources":              {plain, "resources: [nodes], sinks: [{name: s, payload: patch}]", one(kafka)},
		"excluded":                     {`resources: ["*"], exclude: [po], sinks: [{name: s}]`, patch, one(kafka)},
		"other namespaces":             {pods("namespaces: [a], sinks: [{name: s}]"), pods("namespaces: [b], sinks: [{name: s, payload: patch}]"), one(kafka)},
		"other values of a label":      {selected("labelSelector", "a=b"), selected("labelSelector", "a=c"), one(kafka)},
		"a label and its absence":      {selected("labelSelector", "'!a'"), selected("labelSelector", "a=c"), one(kafka)},
		"a label and not that":         {selected("labelSelector", "a!=b"), selected("labelSelector", "'a in (b)'"), one(kafka)},
		"other values of a field":      {selected("fieldSelector", "spec.nodeName=a"), selected("fieldSelector", "spec.nodeName=b"), one(kafka)},
		"a field and not that":         {selected("fieldSelector", "spec.nodeName=a"), selected("fieldSelector", "spec.nodeName!=a"), one(kafka)},
		"other filters":                {selected("filter", "object.metadata.name == 'a'"), selected("filter", "object.metadata.name != 'a'"), one(kafka)},
		"topics by informer":           {plain, patch, topicByInformer},
		"subjects by informer":         {plain, patch, one(`nats: {subject: "k8s.{cluster}.{informer}.{resource}.{namespace}.{name}"}`)},
		"core NATS keeps nothing":      {plain, patch, one("nats: {mode: core}")},
		"standard output keeps none":   {plain, patch, one("stdout: {}")},
		"other topics":                 {plain, pods("sinks: [{name: t, payload: patch}]"), one(kafka) + `  - {name: t, kafka: {brokers: ["k:9092"], topic: "other.{resource}"}}` + "\n"},
		"another group of a like name": {`resources: [services], sinks: [{name: s}]`, `resources: [services.serving.knative.dev], sinks: [{name: s, payload: patch}]`, one(kafka)},
	} {
		t.Run(name+" is accepted", func(t *testing.T) {
			if problems := load(c.first, c.second, c.sinks); len(problems) > 0 {
				t.Errorf("%v", problems)
			}
		})
	}
}
