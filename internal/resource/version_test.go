package resource_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

func TestVersionBefore(t *testing.T) {
	for v, want := range map[resource.Version]resource.Version{
		"2": "1", "10": "9", "100": "99", "1020": "1019", "1000000000000000000000": "999999999999999999999",
		"1": "1", "": "", "0": "0", "abc": "abc", "012": "012",
	} {
		if got := v.Before(); got != want {
			t.Errorf("the version before %q is %q, want %q", v, got, want)
		}
	}
}
