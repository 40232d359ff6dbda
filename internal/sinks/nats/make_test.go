package nats_test

import (
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// No limit in the configuration is none in the stream.
func TestUnlimitedStream(t *testing.T) {
	for _, age := range []time.Duration{0, time.Hour} {
		ts := newTestServer(t)
		ts.openSink(func(o *nats.Options) { o.Stream.MaxAge = age })
		if got := streamConfig(t, ts.jetStream(), "K8S").MaxAge; got != age {
			t.Errorf("%v became %v", age, got)
		}
	}
}

// The hint of an embedded server names the subjects that the configuration has.
func TestAllSubjects(t *testing.T) {
	for template, want := range map[string]string{
		testkit.WithDefaults(nats.Config{}).Subject: "k8s.>",
		"shop.{cluster}-{name}":                     "shop.>",
		"shop.k8s-{name}":                           "shop.>",
		"{cluster}.{name}":                          ">",
		"one.subject":                               "one.subject",
	} {
		if got := nats.AllSubjects(template); got != want {
			t.Errorf("%s: got %s, want %s", template, got, want)
		}
	}
}
