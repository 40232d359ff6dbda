package cli

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Each resource has a line for each sink that gets it.
func TestRoutes(t *testing.T) {
	c := &config.Config{
		Cluster: "prod",
		Informers: []config.Informer{
			{Name: "all", Resources: []string{"*"}},
			{Name: "few", Resources: []string{"deployments.apps", "pods"}, Sinks: []config.Binding{{Name: "lake"}}},
		},
		Sinks: []config.Sink{
			{Name: "stream", NATS: &nats.Config{Subject: "k8s.{cluster}.{resource}.{name}"}},
			{Name: "lake", Kafka: &kafka.Config{Topic: "{informer}.{resource}"}},
			{Name: "kept", History: &history.Config{}},
		},
	}
	var out strings.Builder
	testkit.OK(t, printRoutes(&out, c))
	want := `RESOURCE          INFORMER  SINK    TO
*                 all       stream  subject k8s.prod.{resource}.{name}
*                 all       lake    topic all.{resource}
*                 all       kept    history in the state directory
deployments.apps  few       lake    topic few.deployments
pods              few       lake    topic few.pods
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}
