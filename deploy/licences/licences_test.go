package licences_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/deploy/licences"
)

// Every module that the bridge is compiled of has a licence that is allowed.
func TestDependencyLicences(t *testing.T) {
	modules, err := licences.Find(t.Context(), "../..", "./cmd/bridge", "amd64", "arm64")
	if err != nil {
		t.Fatal(err)
	}
	if err := licences.Check(modules); err != nil {
		t.Error(err)
	}
	text := licences.Notices(modules)
	for _, want := range []string{"std go1.", "github.com/cockroachdb/pebble/v2 v2.", "k8s.io/client-go v0.", "Redistribution and use in source and binary forms"} {
		if !strings.Contains(text, want) {
			t.Errorf("the notices have no %q", want)
		}
	}
}

// A licence that nobody has allowed is refused.
func TestUnknownLicence(t *testing.T) {
	for want, m := range map[string]licences.Module{
		"under GPL-3.0, which nobody":   {Path: "m", Files: []licences.File{{Name: "COPYING", IDs: []string{"GPL-3.0"}, Known: 100}}},
		"only 40 % of sub/LICENSE":      {Path: "m", Files: []licences.File{{Name: "sub/LICENSE", IDs: []string{"MIT"}, Known: 40}}},
		"has no licence that is known":  {Path: "m", Files: []licences.File{{Name: "NOTICE"}}},
		"m v1 has no licence":           {Path: "m", Version: "v1"},
		"under AGPL-3.0, which nobody ": {Path: "m", Files: []licences.File{{Name: "LICENSE", IDs: []string{"MIT", "AGPL-3.0"}, Known: 99}}},
	} {
		if err := licences.Check([]licences.Module{m}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
