package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/settings"
)

// twoSinks is a configuration with two sinks that one informer feeds, and one that feeds each of
// them.
func twoSinks(first, second string) string {
	return fmt.Sprintf(`cluster: prod
informers:
  - {name: pods, resources: [pods]}
  - {name: nodes, resources: [nodes], sinks: [{name: one}]}
  - {name: jobs, resources: [jobs], sinks: [{name: two}]}
sinks:
  - name: one
    %s
  - name: two
    %s
`, first, second)
}

func loadText(text string) error {
	_, err := config.Load(config.Options{File: "two.yaml", Data: []byte(text)})
	return err
}

// Two sinks of an informer may not have one stream.
func TestStreamOfTwoSinks(t *testing.T) {
	for name, c := range map[string]struct{ first, second string }{
		"by default":                {`nats: {servers: ["nats://h:4222"]}`, `nats: {servers: ["nats://h:4222"], subject: "other.{name}"}`},
		"with the port left out":    {`nats: {servers: ["nats://h:4222"]}`, `nats: {servers: ["nats://H"]}`},
		"with one server in common": {`nats: {servers: ["nats://a", "nats://b"]}`, `nats: {servers: ["nats://b", "nats://c"]}`},
		"by another scheme":         {`nats: {servers: ["nats://h"]}`, `nats: {servers: ["tls://h"]}`},
		"in an embedded server":     {`nats: {embedded: true}`, `nats: {servers: ["nats://127.0.0.1:4222"]}`},
		"managed by others":         {`nats: {stream: {manage: "off"}}`, `nats: {stream: {manage: verify}}`},
		"by a template":             {`nats: {stream: {name: "K8S-{resource}"}}`, `nats: {stream: {name: "K8S-{resource}"}}`},
		"by a template and a name":  {`nats: {stream: {name: "K8S-{resource}"}}`, `nats: {stream: {name: K8S-pods}}`},
		"by two templates":          {`nats: {stream: {name: "K8S-{resource}"}}`, `nats: {stream: {name: "K8S-{namespace}"}}`},
		"by the cluster's name":     {`nats: {stream: {name: "K8S-{cluster}"}}`, `nats: {stream: {name: K8S-prod}}`},
		"by the informer's name":    {`nats: {stream: {name: "K8S-{informer}"}}`, `nats: {stream: {name: K8S-pods}}`},
	} {
		t.Run(name, func(t *testing.T) {
			err := loadText(twoSinks(c.first, c.second))
			problems := settings.Problems(err)
			if len(problems) != 1 || problems[0].Path != "sinks[1].nats.stream.name" {
				t.Fatalf("got %v", err)
			}
			for _, want := range []string{"two.yaml:10: ", "sinks[0] (one)", "informer pods", "nats.stream.name: ", "nats.subject"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not say %q", err, want)
				}
			}
		})
	}
}

// Sinks may share a stream where nothing is lost.
func TestStreamSharing(t *testing.T) {
	for name, c := range map[string]struct{ first, second string }{
		"another name":              {`nats: {}`, `nats: {stream: {name: K8S2}}`},
		"another server":            {`nats: {servers: ["nats://a"]}`, `nats: {servers: ["nats://b"]}`},
		"another port":              {`nats: {servers: ["nats://a:1"]}`, `nats: {servers: ["nats://a:2"]}`},
		"another domain":            {`nats: {}`, `nats: {domain: hub}`},
		"another user":              {`nats: {}`, `nats: {credsFile: /c.creds}`},
		"core":                      {`nats: {}`, `nats: {mode: core}`},
		"another sort of broker":    {`nats: {}`, `kafka: {brokers: ["h:1"]}`},
		"templates that differ":     {`nats: {stream: {name: "K8S-{resource}"}}`, `nats: {stream: {name: "K8S-{resource}-patches"}}`},
		"templates that begin else": {`nats: {stream: {name: "A-{resource}"}}`, `nats: {stream: {name: "B-{resource}"}}`},
		"another informer's name":   {`nats: {stream: {name: "K8S-{informer}"}}`, `nats: {stream: {name: K8S-jobs}}`},
		"a field that is not empty": {`nats: {stream: {name: "K8S{resource}"}}`, `nats: {stream: {name: K8S}}`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := loadText(twoSinks(c.first, c.second)); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("no informer in common", func(t *testing.T) {
		text := twoSinks(`nats: {}`, `nats: {subject: "other.{name}"}`)
		if err := loadText(strings.Replace(text, "resources: [pods]}", "resources: [pods], sinks: [{name: one}]}", 1)); err != nil {
			t.Error(err)
		}
	})
}
