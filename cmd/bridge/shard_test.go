package main

import (
	"strings"
	"testing"
)

func TestAShardHasTheNumberOfItsPod(t *testing.T) {
	for host, want := range map[string]string{"bridge-0": "0/3", "kube-bridge-2": "2/3", "bridge-3": "", "bridge": "", "bridge-x": "", "": ""} {
		s, err := shardOfHost(host, "3")
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "StatefulSet")):
			t.Errorf("%q: %v, %v", host, s, err)
		case want != "" && (err != nil || s.String() != want):
			t.Errorf("%q: %v, %v; want %s", host, s, err, want)
		}
	}
}
