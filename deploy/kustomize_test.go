package deploy_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const example = "kustomize/overlays/example"

// The base is made of the chart, so that nobody has to keep two alike.
func TestTheBaseIsMadeOfTheChart(t *testing.T) {
	v := withoutMissing(t, readValues(t, minimal+"serviceMonitor: {enabled: true}\nprometheusRule: {enabled: true}\ndashboard: {enabled: true}\n"))
	component := "# For clusters with the Prometheus Operator: made of the chart by `go test . -update` in deploy/.\n" +
		"apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources:\n"
	for _, o := range objects(t, mustRender(t, v)) {
		dir, file := "base", strings.ToLower(o.GetKind())+".yaml"
		switch kind := o.GetKind(); {
		case strings.Contains(kind, "Role") || kind == "ConfigMap" && o.GetName() == "bridge":
			continue // of the configuration
		case kind == "ServiceMonitor" || kind == "PrometheusRule" || kind == "ConfigMap":
			dir = "components/monitoring"
			component += "  - " + file + "\n"
		}
		withoutHelm(o)
		o.SetNamespace("")
		text, err := yaml.Marshal(o.Object)
		must(t, err)
		golden(t, filepath.Join("kustomize", dir, file), string(text))
	}
	golden(t, "kustomize/components/monitoring/kustomization.yaml", component)
}

// withoutHelm takes off what only says that Helm has installed an object, and in which version.
func withoutHelm(o *unstructured.Unstructured) {
	clean := func(place ...string) {
		for _, label := range []string{"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"} {
			unstructured.RemoveNestedField(o.Object, append(place, "labels", label)...)
		}
		unstructured.RemoveNestedField(o.Object, append(place, "annotations", "checksum/config")...)
		if left, ok, _ := unstructured.NestedMap(o.Object, append(place, "annotations")...); ok && len(left) == 0 {
			unstructured.RemoveNestedField(o.Object, append(place, "annotations")...)
		}
	}
	clean("metadata")
	if o.GetKind() == "StatefulSet" {
		clean("spec", "template", "metadata")
	}
}

// kustomize is what `kubectl kustomize` makes of a directory.
func kustomize(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	must(t, err)
	text, err := made.AsYaml()
	must(t, err)
	return objects(t, string(text))
}

// exampleValues are the values that make the chart do what the example does.
func exampleValues(t *testing.T) values {
	t.Helper()
	v := readValues(t, "{image: {tag: v0.0.0}, secrets: [{name: nats}], serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}")
	text, err := os.ReadFile(filepath.Join(example, "bridge.yaml"))
	must(t, err)
	v["config"] = readValues(t, string(text))
	return withoutMissing(t, v)
}

// Kustomize makes the manifests that the chart makes.
func TestKustomizeLikeChart(t *testing.T) {
	made, rendered := kustomize(t, example), objects(t, mustRender(t, exampleValues(t)))
	for _, o := range rendered {
		withoutHelm(o)
	}
	suffix := regexp.MustCompile(`\bbridge-[a-z0-9]{10}\b`)
	got, want := byName(t, made, suffix), byName(t, rendered, nil)
	for _, name := range slices.Sorted(keys(got, want)) {
		if got[name] != want[name] {
			t.Errorf("%s: kustomize makes\n%s\nthe chart makes\n%s", name, got[name], want[name])
		}
	}
	if len(want) < 7 {
		t.Errorf("only %d objects were compared", len(want))
	}
	const account = namespace + "/bridge"
	if got, want := rightsOf(t, made, account), rightsOf(t, rendered, account); !equal(got, want) {
		t.Errorf("rights: kustomize gives\n  %s\nthe chart gives\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// byName is each object as text, but for roles, which may be cut in another way, and with the name
// of the configuration without its hash.
func byName(t *testing.T, list []*unstructured.Unstructured, suffix *regexp.Regexp) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, o := range list {
		if strings.Contains(o.GetKind(), "Role") {
			continue
		}
		switch o.GetKind() {
		case "ConfigMap":
			normalize(t, o)
		case "StatefulSet":
			byMountName(t, o)
		}
		text, err := yaml.Marshal(o.Object)
		must(t, err)
		if suffix != nil {
			text = suffix.ReplaceAll(text, []byte("bridge"))
		}
		name := o.GetName()
		if suffix != nil {
			name = suffix.ReplaceAllString(name, "bridge")
		}
		found[fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), name)] = string(text)
	}
	return found
}

// normalize rewrites the configuration without comments, its keys sorted; and takes off the labels
// of the chart's ConfigMap, which kustomize's has not.
func normalize(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	text, ok, err := unstructured.NestedString(o.Object, "data", "bridge.yaml")
	must(t, err)
	if !ok {
		return
	}
	var content any
	must(t, yaml.Unmarshal([]byte(text), &content))
	sorted, err := yaml.Marshal(content)
	must(t, err)
	must(t, unstructured.SetNestedField(o.Object, string(bytes.TrimSpace(sorted)), "data", "bridge.yaml"))
	o.SetLabels(nil)
}

// byMountName sorts volumes and mounts, which have no order.
func byMountName(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	set := as[appsv1.StatefulSet](t, o)
	pod := &set.Spec.Template.Spec
	slices.SortFunc(pod.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
	mounts := pod.Containers[0].VolumeMounts
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(set)
	must(t, err)
	o.Object = content
}

func keys(maps ...map[string]string) func(func(string) bool) {
	seen := map[string]bool{}
	return func(yield func(string) bool) {
		for _, m := range maps {
			for key := range m {
				if !seen[key] && !yield(key) {
					return
				}
				seen[key] = true
			}
		}
	}
}

// The rights of the example are those that the bridge prints.
func TestExampleRights(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(example, "bridge.yaml"))
	must(t, err)
	golden(t, filepath.Join(example, "rbac.yaml"), rbacOf(t, string(text), "--offline", "--namespace", namespace))
}

// The API server accepts the manifests that Kustomize makes.
func TestKustomizeOnAPIServer(t *testing.T) {
	c := live(t)
	must(t, c.apply(t.Context(), kustomize(t, example), true))
	if warnings := c.takeWarnings(); len(warnings) > 0 {
		t.Errorf("the API server warns: %s", strings.Join(warnings, "; "))
	}
}
