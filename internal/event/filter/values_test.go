package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/resource"
)

func TestIndexValues(t *testing.T) {
	raw := `{"metadata":{"name":"a","resourceVersion":"8","labels":{"app":"web"}},` +
		`"spec":{"containers":[{"image":"web:1"},{"image":"proxy:2"},{}],"n":3,"mixed":["a",1]},"long":[` +
		strings.Repeat("1,", 2000) + `1]}`
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		`object.metadata.labels.app`:                                 {"web"},
		`object.metadata.labels.tier`:                                nil,
		`object.spec.containers.map(c, c.image)`:                     {"web:1", "proxy:2"},
		`object.spec.volumes.map(v, v.name)`:                         nil,
		`object.metadata.name == "a" ? ["a", "b"] : []`:              {"a", "b"},
		`has(object.spec.n) ? "yes" : "no"`:                          {"yes"},
		`object.spec.n`:                                              {filter.FailedValue},
		`object.spec.mixed`:                                          {filter.FailedValue},
		`object.metadata.labels`:                                     {filter.FailedValue},
		`object.metadata.labels.app.split("")[9]`:                    {filter.FailedValue},
		`object.long.all(x, object.long.all(y, x == y)) ? "a" : "b"`: {filter.FailedValue}, // it costs too much
	} {
		index, err := filter.CompileIndex(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := index.Values([]string{"before"}, obj); !slices.Equal(got, append([]string{"before"}, want...)) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestBadIndexes(t *testing.T) {
	for text, want := range map[string]string{
		``:                     "Syntax error",
		`object.a ==`:          "Syntax error",
		`objekt.a`:             "1:1: undeclared reference to 'objekt'",
		`1`:                    "want a string, or a list of strings; this is of type int",
		`object.a == "x"`:      "want a string, or a list of strings; this is of type bool",
		`old.a`:                "an index has only object",
		`op`:                   "an index has only object",
		`[meta.name]`:          "an index has only object",
		`object.a + meta.name`: "an index has only object",
	} {
		_, err := filter.CompileIndex(text)
		if err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
