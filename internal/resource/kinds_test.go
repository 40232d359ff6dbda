package resource_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

// typeNamed is the type of a name as Type.String gives it.
func typeNamed(name string) resource.Type {
	plural, group, _ := strings.Cut(name, ".")
	return resource.Type{Group: group, Version: "v1", Resource: plural}
}

// planted is an object with one value at each path, and the values.
func planted(t *testing.T, paths []string) (raw string, values []string) {
	t.Helper()
	obj := map[string]any{}
	for i, text := range paths {
		value := fmt.Sprintf("hunter2-%d-end", i)
		values = append(values, value)
		plant(obj, strings.Split(text, "."), value)
	}
	obj["metadata"] = map[string]any{"name": "a", "resourceVersion": "1"}
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), values
}

// plant puts a value at a path. Every member and item is one that is called x.
func plant(obj map[string]any, path []string, value any) {
	name := path[0]
	if name == "*" {
		name = "x"
	}
	if len(path) == 1 {
		obj[name] = value
		return
	}
	inner, _ := obj[name].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		obj[name] = inner
	}
	plant(inner, path[1:], value)
}

func TestKindsWithCredentials(t *testing.T) {
	kinds := resource.CredentialPaths()
	t.Run("each path is redacted, and found when it is not", func(t *testing.T) {
		for name, paths := range kinds {
			raw, values := planted(t, paths)
			typ := typeNamed(name)
			got := string(mustParse(t, raw, resource.ParseOptions{Type: typ, Redactor: newRedactor(t)}).Raw)
			sent := string(mustParse(t, raw, resource.ParseOptions{Type: typ}).Raw)
			for i, value := range values {
				if strings.Contains(got, value) || !strings.Contains(sent, value) {
					t.Errorf("%s: %s: redacted %s\nsent %s", name, paths[i], got, sent)
				}
			}
		}
	})
	t.Run("the paths of the configuration hold beside them", func(t *testing.T) {
		opts := resource.ParseOptions{
			Type: typeNamed("users.management.cattle.io"), Redactor: newRedactor(t),
			Rules: newRules(t, resource.RulesConfig{Redact: pathsOf(t, "description"), Drop: pathsOf(t, "username")}),
		}
		raw := string(mustParse(t, `{"metadata":{"name":"a","resourceVersion":"1"},"password":"hunter2","description":"hunter2","username":"hunter2","me":true}`, opts).Raw)
		if strings.Contains(raw, "hunter2") || !strings.Contains(raw, `"me":true`) {
			t.Error(raw)
		}
	})
	t.Run("managed fields and copies are taken out too", func(t *testing.T) {
		opts := resource.ParseOptions{Type: typeNamed("tokens.management.cattle.io"), KeepManagedFields: true, Redactor: newRedactor(t)}
		raw := string(mustParse(t, `{"metadata":{"name":"a","resourceVersion":"1","annotations":{"`+lastApplied+`":"hunter2"},
			"managedFields":[{"manager":"m","fieldsV1":{"v:\"hunter2\"":{}}}]},"token":"hunter2"}`, opts).Raw)
		if strings.Contains(raw, "hunter2") {
			t.Error(raw)
		}
	})
	t.Run("the same resource of another group is left alone", func(t *testing.T) {
		opts := resource.ParseOptions{Type: typeNamed("tokens.example.com"), Redactor: newRedactor(t)}
		if opts.Redacts() || !strings.Contains(string(mustParse(t, `{"metadata":{"name":"a","resourceVersion":"1"},"token":"kept"}`, opts).Raw), "kept") {
			t.Error("it is redacted")
		}
	})
	t.Run("no path reaches what identifies an object", func(t *testing.T) {
		for name, paths := range kinds {
			for _, p := range paths {
				if err := resource.CheckRule(mustPath(t, p)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
	t.Run("the page has the same lists", func(t *testing.T) {
		page := string(readTestdata(t, "../../../docs/redaction.md"))
		for mark, want := range map[string][]string{
			"<!-- kinds -->":      slices.Sorted(maps.Keys(kinds)),
			"<!-- unredacted -->": resource.UnredactedKinds(),
		} {
			_, list, _ := strings.Cut(page, mark)
			list, _, _ = strings.Cut(list, "<!-- end -->")
			var names []string
			for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(list, -1) {
				names = append(names, m[1])
			}
			if !slices.Equal(names, want) {
				t.Errorf("%s docs/redaction.md has\n%q\nwant\n%q", mark, names, want)
			}
		}
	})
	t.Run("they are those of the golden file", func(t *testing.T) {
		var list strings.Builder
		for _, name := range slices.Sorted(maps.Keys(kinds)) {
			for _, p := range slices.Sorted(slices.Values(kinds[name])) {
				fmt.Fprintln(&list, name, p)
			}
		}
		golden(t, "testdata/kinds.golden", list.String())
	})
}
