package deploy_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// schemas writes the JSON schema of each kind that the API server serves, custom resources too, as
// kubeconform looks for them. They come from the control plane of the tests: there is no network.
func schemas(t *testing.T, c *cluster) (location string) {
	t.Helper()
	dir := t.TempDir()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		writeSchemas(t, c, dir)
		missing := slices.DeleteFunc([]string{"servicemonitor", "prometheusrule"}, func(kind string) bool {
			_, err := os.Stat(filepath.Join(dir, kind+"-monitoring-v1.json"))
			return err == nil
		})
		if len(missing) == 0 {
			return filepath.Join(dir, "{{.ResourceKind}}{{.KindSuffix}}.json")
		}
		if time.Now().After(deadline) { // the API server describes custom resources some time after it serves them
			t.Fatalf("the API server has no schema of %v", missing)
		}
	}
}

func writeSchemas(t *testing.T, c *cluster, dir string) {
	t.Helper()
	paths, err := c.client.Discovery().OpenAPIV3().Paths()
	must(t, err)
	for path, group := range paths {
		if !strings.HasPrefix(path, "api") {
			continue // not of resources
		}
		text, err := group.Schema("application/json")
		must(t, err)
		var document struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		must(t, json.Unmarshal(text, &document))
		for _, s := range document.Components.Schemas {
			refuseUnknown(s)
		}
		for name, s := range document.Components.Schemas {
			for _, kind := range kindsOf(t, s) {
				file := strings.ToLower(kind.Kind)
				if kind.Group != "" {
					file += "-" + strings.Split(kind.Group, ".")[0]
				}
				text, err := json.Marshal(map[string]any{
					"$ref": "#/components/schemas/" + url.PathEscape(name), "components": document.Components,
				})
				must(t, err)
				must(t, os.WriteFile(filepath.Join(dir, file+"-"+kind.Version+".json"), text, 0o600))
			}
		}
	}
}

// kindsOf are the kinds that a schema is of: none for a part of others, and for options, which are
// of every group.
func kindsOf(t *testing.T, s map[string]any) (kinds []schema.GroupVersionKind) {
	t.Helper()
	text, err := json.Marshal(s["x-kubernetes-group-version-kind"])
	must(t, err)
	must(t, json.Unmarshal(text, &kinds))
	if len(kinds) > 1 {
		return nil
	}
	return kinds
}

// refuseUnknown has a schema refuse fields that it does not name, which OpenAPI's leave open.
func refuseUnknown(s map[string]any) {
	if properties, ok := s["properties"].(map[string]any); ok {
		if _, open := s["additionalProperties"]; !open && s["x-kubernetes-preserve-unknown-fields"] != true {
			s["additionalProperties"] = false
		}
		for property := range maps.Values(properties) {
			if inner, ok := property.(map[string]any); ok {
				refuseUnknown(inner)
			}
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := s[key].(map[string]any); ok {
			refuseUnknown(inner)
		}
	}
}

// TestManifestsConform: kubeconform finds nothing in what the chart and kustomize make.
func TestManifestsConform(t *testing.T) {
	v, err := validator.New([]string{schemas(t, live(t))}, validator.Opts{Strict: true})
	must(t, err)
	check := func(o *unstructured.Unstructured) validator.Result {
		text, err := o.MarshalJSON()
		must(t, err)
		return v.ValidateResource(resource.Resource{Path: o.GetKind(), Bytes: text})
	}
	manifests := map[string][]*unstructured.Unstructured{"kustomize": kustomize(t, example)}
	for name, values := range cases(t) {
		manifests[name] = append(objects(t, mustRender(t, values)), objects(t, renderHooks(t, values))...)
	}
	checked := 0
	for name, list := range manifests {
		t.Run(name, func(t *testing.T) {
			for _, o := range list {
				checked++
				if r := check(o); r.Status != validator.Valid {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), r.Err)
				}
			}
		})
	}
	if checked < 50 {
		t.Errorf("only %d objects were checked", checked)
	}
	t.Run("what is wrong is found", func(t *testing.T) {
		for _, wrong := range []struct {
			kind  string
			value any
			field []string
		}{
			{"ServiceMonitor", "often", []string{"spec", "endpoints"}},
			{"Service", true, []string{"spec", "headless"}},
			{"StatefulSet", "three", []string{"spec", "replicas"}},
			{"StatefulSet", "yes", []string{"spec", "template", "spec", "hostNetwrok"}},
		} {
			o := find(t, objects(t, mustRender(t, cases(t)["full"])), wrong.kind, "")
			must(t, unstructured.SetNestedField(o.Object, wrong.value, wrong.field...))
			if r := check(o); r.Status != validator.Invalid {
				t.Errorf("%s with %v: %v", wrong.kind, wrong.field, r.Err)
			}
		}
	})
}
