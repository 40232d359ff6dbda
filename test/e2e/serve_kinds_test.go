package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Everything, with the Leases and Events that a bridge leaves out by itself.
const keptEverything = `
informers: [{name: all, resources: ["*"]}]` + kept

// For every kind that the control plane has, in a namespace or in none, the API server's list of
// one resourceVersion is the truth for what is served of it, and each object of the list for what
// is got by its name.
func TestServeEveryKind(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	d := l.definition()
	d.define("v1:stored")
	d.create("v1", "one")
	kinds := l.listedKinds()
	l.createOneOfEach(kinds)
	l.createDeployment("web", 2)
	l.waitRolledOut("web")
	b := l.bridge("bridge", keptEverything)
	l.start(b)
	l.createConfigMap("changed", "1")
	l.updateConfigMap("changed", "2") // there are versions that no first list has
	l.createConfigMap("newest", "1")
	newest, err := l.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).
		Namespace(l.namespace).Get(l.ctx, "newest", metav1.GetOptions{})
	must(t, err)
	version := newest.GetResourceVersion()
	want := map[schema.GroupVersionResource][]unstructured.Unstructured{}
	for kind := range kinds {
		want[kind] = l.own(exactly(t, l.dynamic, kind, version))
		if len(want[kind]) == 0 {
			t.Errorf("%v: there is no object: the test shows nothing for it", kind)
		}
	}
	t.Logf("%d kinds at resourceVersion %s", len(kinds), version)
	for _, name := range []string{"changed", "newest"} {
		l.updateConfigMap(name, "later")
	}
	total := 0
	for _, objects := range want {
		total += len(objects)
	}
	eventually(t, "the history of that moment", time.Minute, func() []string {
		out, err := b.Output(l.ctx, "state", "-A", "--at", version, "-o", "json")
		if n := strings.Count(out, "\n"); err != nil || n < total {
			return []string{fmt.Sprintf("%d objects, want %d: %v", n, total, err)}
		}
		return nil
	})

	config := l.served(b, "--at", version)
	config.QPS = -1
	past, err := dynamic.NewForConfig(config)
	must(t, err)
	served := l.kindsOf(config)
	for kind, objects := range want {
		if got, want := served[kind], kinds[kind]; got.Kind != want.Kind || got.Namespaced != want.Namespaced {
			t.Errorf("%v is discovered as %+v, want %+v", kind, got, want)
		}
		list, err := past.Resource(kind).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("%v: %v", kind, err)
			continue
		}
		if list.GetResourceVersion() != version {
			t.Errorf("%v: the list is of resourceVersion %s, want %s", kind, list.GetResourceVersion(), version)
		}
		requireEqual(t, kind, l.own(list.Items), objects)
		var got []unstructured.Unstructured
		for i := range objects {
			o, err := past.Resource(kind).Namespace(objects[i].GetNamespace()).Get(t.Context(), objects[i].GetName(), metav1.GetOptions{})
			if err != nil {
				t.Errorf("%v: %v", kind, err)
				continue
			}
			got = append(got, *o)
		}
		requireEqual(t, kind, got, objects)
	}
	l.stop(b)
}

// listedKinds are those of the API server that can be listed and watched.
func (l *lab) listedKinds() map[schema.GroupVersionResource]metav1.APIResource {
	l.t.Helper()
	return l.kindsOf(l.Admin())
}

// kindsOf are those that a server can list and watch, but for those of other tests.
func (l *lab) kindsOf(config *rest.Config) map[schema.GroupVersionResource]metav1.APIResource {
	l.t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(config)
	must(l.t, err)
	lists, err := d.ServerPreferredResources()
	must(l.t, err)
	kinds := map[schema.GroupVersionResource]metav1.APIResource{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		must(l.t, err)
		if strings.HasSuffix(gv.Group, "example.com") && !strings.HasPrefix(gv.Group, l.namespace) {
			continue
		}
		for _, r := range list.APIResources {
			if gv.Group != "events.k8s.io" { // the same objects as the Events without a group
				kinds[gv.WithResource(r.Name)] = r
			}
		}
	}
	return kinds
}

// createOneOfEach creates the objects of testdata/kinds.yaml, and removes those that are in no
// namespace afterwards.
func (l *lab) createOneOfEach(kinds map[schema.GroupVersionResource]metav1.APIResource) {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "kinds.yaml"))
	must(l.t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(text)), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return
		}
		must(l.t, err)
		found := false
		for kind, r := range kinds {
			if o.GroupVersionKind() != kind.GroupVersion().WithKind(r.Kind) {
				continue
			}
			found = true
			api := l.dynamic.Resource(kind)
			if r.Namespaced {
				_, err = api.Namespace(l.namespace).Create(l.ctx, &o, metav1.CreateOptions{})
			} else {
				l.t.Cleanup(func() { _ = api.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}) })
				_, err = api.Create(l.ctx, &o, metav1.CreateOptions{})
			}
			if err != nil {
				l.t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
		if !found {
			l.t.Errorf("the control plane has no %v", o.GroupVersionKind())
		}
	}
}

// own are the objects of this test's namespace, of Kubernetes itself, and those in none. Others may
// be of tests with hostile objects, or with secrets in annotations.
func (l *lab) own(objects []unstructured.Unstructured) []unstructured.Unstructured {
	return slices.DeleteFunc(objects, func(o unstructured.Unstructured) bool {
		in := o.GetNamespace()
		return in != "" && in != l.namespace && !strings.HasPrefix(in, "kube-")
	})
}

// exactly is the API server's list of one version.
func exactly(t *testing.T, client dynamic.Interface, kind schema.GroupVersionResource, version string) []unstructured.Unstructured {
	t.Helper()
	list, err := client.Resource(kind).List(t.Context(), metav1.ListOptions{
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	must(t, err)
	return list.Items
}

// requireEqual compares objects less managedFields and what redaction takes out.
func requireEqual(t *testing.T, kind schema.GroupVersionResource, got, want []unstructured.Unstructured) {
	t.Helper()
	texts := func(objects []unstructured.Unstructured) map[string]string {
		all := map[string]string{}
		for i := range objects {
			o := objects[i].DeepCopy()
			o.SetManagedFields(nil)
			if kind.Resource == "secrets" {
				unstructured.RemoveNestedField(o.Object, "data")
			}
			text, err := json.Marshal(o.Object)
			must(t, err)
			all[o.GetNamespace()+"/"+o.GetName()] = string(text)
		}
		return all
	}
	has, needs := texts(got), texts(want)
	for name, object := range needs {
		if has[name] != object {
			t.Errorf("%v %s:\n%s\nwant\n%s", kind, name, has[name], object)
		}
		delete(has, name)
	}
	for name := range has {
		t.Errorf("%v %s was not there", kind, name)
	}
}
