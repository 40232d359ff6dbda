package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestWarnings(t *testing.T) {
	const sinks = "sinks: [{name: out, stdout: {}}]\n"
	load := func(t *testing.T, text string) *config.Config {
		t.Helper()
		c, err := config.Load(config.Options{File: "bridge.yaml", Data: []byte(text + strings.Repeat(sinks, 1-strings.Count(text, "sinks:")))})
		testkit.OK(t, err)
		return c
	}
	texts := func(list []error) (out []string) {
		for _, err := range list {
			out = append(out, err.Error())
		}
		return out
	}
	const (
		machines = "virtualmachines.kubevirt.io often hold credentials (spec.template.spec.volumes.*.cloudInitConfigDrive, " +
			"spec.template.spec.volumes.*.cloudInitNoCloud), " +
			"and these are not redacted: name their paths in redact or drop, or exclude the kind"
		memory = "state.mode: without redaction.keyFile each start has another redaction key: every redacted value would look changed"
	)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing to warn of":                  {"informers: [{name: a, resources: [pods]}]\n", nil},
		"a kind with credentials":             {"informers:\n  - name: a\n    resources: [virtualmachines.kubevirt.io]\n", []string{"bridge.yaml:3: informers[0].resources: " + machines}},
		"one that is redacted":                {"informers: [{name: a, resources: [virtualmachines.kubevirt.io], drop: [spec.template.spec.volumes]}]\n", nil},
		"one that is redacted within":         {"informers: [{name: a, resources: [virtualmachines.kubevirt.io], redact: ['spec.template.spec.volumes.*.*.userData']}]\n", nil},
		"a rule for something else":           {"informers:\n  - {name: a, resources: [virtualmachines.kubevirt.io], redact: [spec.values], drop: [metadata.labels, spec.volumes]}\n", []string{"bridge.yaml:2: informers[0].resources: " + machines}},
		"a rule for one of two kinds":         {"informers:\n  - {name: a, resources: [virtualmachines.kubevirt.io, issuers.cert-manager.io], redact: ['spec.acme.solvers.*.dns01.webhook.config']}\n", []string{"bridge.yaml:2: informers[0].resources: " + machines}},
		"one of an author who sends secrets":  {"informers: [{name: a, resources: [virtualmachines.kubevirt.io], secrets: send}]\n", nil},
		"a state in memory":                   {"informers: [{name: a, resources: [secrets]}]\nstate: {mode: memory}\nsinks: [{name: n, nats: {}}]\n", []string{"bridge.yaml:2: " + memory}},
		"a state in memory, on a terminal":    {"informers: [{name: a, resources: [secrets]}]\nstate: {mode: memory}\n", nil},
		"a state in memory without redaction": {"informers: [{name: a, resources: [pods]}]\nstate: {mode: memory}\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := texts(Warnings(load(t, c.text))); !slices.Equal(got, c.want) {
				t.Errorf("got\n%q\nwant\n%q", got, c.want)
			}
		})
	}
	t.Run("kinds that only the API server knows", func(t *testing.T) {
		served := []resource.Type{{Version: "v1", Resource: "pods"}, {Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}}
		got := texts(kindsServed(load(t, "informers: [{name: a, resources: ['*']}]\n"), [][]resource.Type{served}))
		if want := []string{"bridge.yaml:1: informers[0].resources: " + machines}; !slices.Equal(got, want) {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	})
}
