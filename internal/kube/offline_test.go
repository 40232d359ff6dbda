package kube_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/kube"
)

func TestOfflineSelection(t *testing.T) {
	for _, test := range []struct {
		name, exclude string
		has, hasNot   string
	}{
		{"*", "", "*.*", "secrets apps"},
		{"*", "events leases.coordination.k8s.io", "*.*", "secrets"},
		{"*", "secrets", "configmaps events *.apps", "secrets *.* *.events.k8s.io"},
		{"*", "secret po *.apps", "configmaps *.batch", "secrets pods *.* *.apps"},
		{"*", "Secret.v1 events.events.k8s.io", "pods *.apps", "secrets events *.*"},
		{"*", "*.", "*.apps", "secrets pods *.*"},
		{"*", "*", "", "secrets *.* *.apps"},
		{"*.*", "secrets", "pods *.apps", "secrets *.*"},
		{"*.", "", "*", "pods"},
		{"*.", "deployments.apps", "*", "pods"},
		{"*.", "secrets", "configmaps", "secrets *"},
		{"*.", "secrets.", "configmaps", "secrets *"},
		{"*.", "SECRETS.V1.", "configmaps", "secrets *"},
		{"*.", "secrets.v1", "configmaps", "secrets *"},
		{"*.", "cm", "secrets", "configmaps *"},
		{"*.", "*.", "", "secrets *"},
		{"*.apps", "deployments.apps", "*.apps", ""}, // only the server knows what else there is
		{"*.apps", "*.apps", "", "*.apps"},
		{"secrets", "secret", "", "secrets"},
		{"deployments.v1.apps", "deployments.apps", "", "deployments.apps"},
		{"secrets.example.org", "secrets", "secrets.example.org", ""},
	} {
		t.Run(test.name+" without "+test.exclude, func(t *testing.T) {
			selected, err := kube.OfflineSelection(test.name, strings.Fields(test.exclude), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, gr := range selected {
				got = append(got, gr.String())
			}
			for want := range strings.FieldsSeq(test.has) {
				if !slices.Contains(got, want) {
					t.Errorf("%q does not have %s", got, want)
				}
			}
			for not := range strings.FieldsSeq(test.hasNot) {
				if slices.Contains(got, not) {
					t.Errorf("%q has %s", got, not)
				}
			}
			if test.has == "" && len(got) > 0 {
				t.Errorf("%q, want nothing", got)
			}
		})
	}
}
