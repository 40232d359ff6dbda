package resource_test

import (
	"reflect"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

// Paths are read as they are written.
func TestPaths(t *testing.T) {
	for text, want := range map[string]string{
		"spec":                              "",
		"status.conditions.*.lastHeartbeat": "",
		"*":                                 "",
		"a[*].b":                            "a.*.b",
		`metadata.annotations["x.io/y"].z`:  "",
		`metadata.annotations['x.io/y']`:    `metadata.annotations["x.io/y"]`,
		`a["*"]`:                            "",
		`["a.b"].c`:                         "",
		`['a"b\c']`:                         `["a"b\c"]`,
		`['"]'].a`:                          "",
		".spec.replicas":                    "spec.replicas",
	} {
		p, err := resource.ParsePath(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if want == "" {
			want = text
		}
		if p.String() != want {
			t.Errorf("%s became %s", text, p)
		}
		if again, err := resource.ParsePath(p.String()); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%s is read as %s, %v", p, again, err)
		}
	}
	for _, bad := range []string{"", ".", "a.", "..a", "a..b", "a[", "a[0]", `a["b]`, `a["b"]c`, `a[""]`, "a]b", `a"b`} {
		if p, err := resource.ParsePath(bad); err == nil {
			t.Errorf("%q was read as %s", bad, p)
		}
	}
}

// A path reaches a place, and what is around it.
func TestPathReaches(t *testing.T) {
	for text, want := range map[string]bool{
		"metadata.name": true, "metadata": true, "*": true, "*.name": true, "metadata.*": true,
		"metadata.name.x": false, "metadata.uid": false, "spec.*": false, "*.uid": false,
	} {
		if got := mustPath(t, text).Reaches("metadata", "name"); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestPathOverlaps(t *testing.T) {
	for _, test := range []struct {
		one, other string
		want       bool
	}{
		{"spec.a", "spec.a", true},
		{"spec", "spec.a", true},
		{"spec.*.b", "spec.a", true},
		{"spec.*.b", "spec.a.*", true},
		{"spec.a", "spec.b", false},
		{"spec.*.b", "spec.a.c", false},
	} {
		one, other := mustPath(t, test.one), mustPath(t, test.other)
		if one.Overlaps(other) != test.want || other.Overlaps(one) != test.want {
			t.Errorf("%s and %s: want %v", one, other, test.want)
		}
	}
}

// A path finds a value.
func TestPathLookup(t *testing.T) {
	raw := []byte(`{"metadata":{"labels":{"a.b/c":"x"},"\u006eame":"n"}}`)
	for text, want := range map[string]string{`metadata.labels["a.b/c"]`: `"x"`, "metadata.name": `"n"`, "metadata.name.x": "", "spec": ""} {
		if got := string(mustPath(t, text).Find(raw)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func mustPath(t testing.TB, text string) resource.Path {
	t.Helper()
	p, err := resource.ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
