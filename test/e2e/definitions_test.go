package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// definition is a CRD that a test has for itself: resource things in a group of the lab's
// namespace. A test that fails leaves it to the end of the cluster.
type definition struct {
	*lab
	group string
}

func (l *lab) definition() *definition {
	return &definition{lab: l, group: l.namespace + ".example.com"}
}

func (d *definition) name() string { return "things." + d.group }

func (d *definition) crds() dynamic.ResourceInterface {
	return d.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
}

func (d *definition) things(version string) dynamic.ResourceInterface {
	return d.dynamic.Resource(schema.GroupVersionResource{Group: d.group, Version: version, Resource: "things"}).Namespace(d.namespace)
}

// versions are those that a definition has: name, and whether it is served and stored.
func versions(list ...string) (out []any) {
	for _, v := range list {
		name, marks, _ := strings.Cut(v, ":")
		out = append(out, map[string]any{
			"name": name, "served": !strings.Contains(marks, "unserved"), "storage": strings.Contains(marks, "stored"),
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	}
	return out
}

// describe gives a version of the definition a schema with descriptions.
func (d *definition) describe(version string) {
	d.t.Helper()
	eventually(d.t, "the definition has a schema", testPatience, func() []string {
		crd, err := d.crds().Get(d.ctx, d.name(), metav1.GetOptions{})
		must(d.t, err)
		list := versions(version + ":stored")
		list[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{ //nolint:forcetypeassert // of versions
			"type": "object", "description": "A thing has a size.", "properties": map[string]any{"spec": map[string]any{
				"type": "object", "description": "What is wanted.", "required": []any{"size"}, "properties": map[string]any{
					"size":  map[string]any{"type": "integer", "description": "In metres."},
					"parts": map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
					"other": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
			}},
		}}
		list[0].(map[string]any)["additionalPrinterColumns"] = printedColumns( //nolint:forcetypeassert // the same
			"integer .spec.size", "string .spec.size", "number .spec.size", "integer .spec.other.ratio", "number .spec.other.ratio",
			"string .spec.other.ratio", "boolean .spec.other.on", "string .spec.other.on", "date .spec.other.since", "date .spec.other.name",
			"string .spec.parts", "string .spec.parts[0]", "string .spec.other", "string .spec.other.name", "integer .spec.other.name",
			`string .spec.other.conditions[?(@.type=="Ready")].status`, "string .spec.other.conditions[*].type", "date .metadata.creationTimestamp",
			`string .metadata.labels.example\.com/a`, "boolean .spec.other.nothing",
		)
		list[0].(map[string]any)["selectableFields"] = []any{map[string]any{"jsonPath": ".spec.size"}} //nolint:forcetypeassert // the same
		must(d.t, unstructured.SetNestedSlice(crd.Object, list, "spec", "versions"))
		if _, err := d.crds().Update(d.ctx, crd, metav1.UpdateOptions{}); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

// printedColumns are columns of tables: each a type and a path.
func printedColumns(list ...string) (columns []any) {
	for i, c := range list {
		typ, path, _ := strings.Cut(c, " ")
		columns = append(columns, map[string]any{"name": fmt.Sprint("Column ", i), "type": typ, "jsonPath": path})
	}
	return columns
}

// define makes the definition with these versions, or changes it, and waits until the first of them
// is served.
func (d *definition) define(list ...string) {
	d.t.Helper()
	eventually(d.t, "the definition is written", testPatience, func() []string {
		crd, err := d.crds().Get(d.ctx, d.name(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = d.crds().Create(d.ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": d.name()},
				"spec": map[string]any{
					"group": d.group, "scope": "Namespaced", "versions": versions(list...),
					"names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing"},
				},
			}}, metav1.CreateOptions{})
		} else if err == nil {
			must(d.t, unstructured.SetNestedSlice(crd.Object, versions(list...), "spec", "versions"))
			_, err = d.crds().Update(d.ctx, crd, metav1.UpdateOptions{})
		}
		if err != nil {
			return []string{err.Error()}
		}
		return nil
	})
	version, _, _ := strings.Cut(list[0], ":")
	eventually(d.t, "things are served", testPatience, func() []string {
		if _, err := d.things(version).List(d.ctx, metav1.ListOptions{}); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

func (d *definition) drop() {
	d.t.Helper()
	must(d.t, d.crds().Delete(d.ctx, d.name(), metav1.DeleteOptions{}))
	eventually(d.t, "the definition is gone", testPatience, func() []string {
		_, err := d.crds().Get(d.ctx, d.name(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return []string{fmt.Sprint("it is there, ", err)}
	})
}

// create makes a thing; just after its definition has changed the API server may not take it.
func (d *definition) create(version, name string) {
	d.t.Helper()
	eventually(d.t, "create "+name, testPatience, func() []string {
		_, err := d.things(version).Create(d.ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": d.group + "/" + version, "kind": "Thing", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": int64(1)},
		}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return []string{err.Error()}
		}
		return nil
	})
}

// phase waits until the bridge's informer of things is in a phase and version: "watching v1".
func (d *definition) phase(b *harness.Bridge, want string) {
	d.t.Helper()
	eventually(d.t, "the informer of things is "+want, testPatience, func() []string {
		if !b.Running() {
			d.t.Fatalf("the bridge ended:\n%s", b.Log.Tail(20))
		}
		s, err := b.Status(d.ctx)
		if err != nil {
			return []string{err.Error()}
		}
		got := ""
		for _, i := range s.Informers {
			if i.Resource == d.name() {
				got = i.Phase + " " + strings.TrimPrefix(i.APIVersion, d.group+"/")
			}
		}
		if got != want {
			return []string{"it is " + got}
		}
		return nil
	})
}

// await waits until the stream reports a thing in one of these words, and gives all that it
// reports of things: "added name v1".
func (d *definition) await(r reader, want ...string) (all []string) {
	d.t.Helper()
	eventually(d.t, "the stream has "+strings.Join(want, " or "), testPatience, func() []string {
		events, err := r.Refresh(d.ctx)
		if err != nil {
			return []string{err.Error()}
		}
		all = all[:0]
		for _, e := range events {
			if e.GroupResource() == d.name() {
				_, version, _ := strings.Cut(e.Attribute("apiversion"), "/")
				words := []string{e.Op(), e.Attribute("name"), version}
				if e.Op() == "deleted" && e.Attribute("inferred") != "" {
					words = append(words, "inferred")
				}
				all = append(all, strings.Join(words, " "))
			}
		}
		if !slices.ContainsFunc(want, func(w string) bool { return slices.Contains(all, w) }) {
			return all
		}
		return nil
	})
	return all
}

// deleted waits until the stream reports that a thing is gone. A change of the definition cuts its
// watches: what is deleted just then is found by a list, and reported with what the bridge knew
// last, in the version that it had it in.
func (d *definition) deleted(r reader, name string) {
	d.t.Helper()
	line := "deleted " + name
	d.await(r, line+" v2", line+" v2 inferred", line+" v1 inferred")
}

// A definition that appears, moves and disappears is followed.
func TestDefinitionLifecycle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resources string
		before    bool // the definition has to be there at the start
	}{
		"everything":     {resources: `["*"], exclude: [leases, events]`},
		"all of a group": {resources: `[configmaps, "*.${GROUP}"]`, before: true},
		"by its name":    {resources: `[configmaps, "things.${GROUP}"]`, before: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, live(t))
			d := l.definition()
			ledger := l.witness(truth.Core("configmaps", l.namespace))
			b := l.bridge("bridge", `informers: [{name: app, resources: `+c.resources+`, namespaces: ["${NS}"]}]`+embedded, with(map[string]string{"GROUP": d.group, "BRIDGE_KUBERNETES_DISCOVERY_INTERVAL": "2s"}))
			stream := jetStream(b)
			if c.before {
				d.define("v1:stored")
			}
			l.start(b)
			l.createConfigMap("untouched", "1")

			if !c.before {
				d.define("v1:stored")
			}
			d.create("v1", "a")
			d.await(stream, "added a v1")
			d.phase(b, "watching v1")

			d.define("v1:stored", "v2") // v2 is what the API server prefers now
			d.create("v1", "b")
			d.phase(b, "watching v2")
			d.create("v2", "c")
			d.await(stream, "added c v2")
			d.define("v1", "v2:stored")
			d.create("v1", "d")
			d.await(stream, "added d v2")
			d.define("v2:stored", "v1:unserved")
			must(t, d.things("v2").Delete(l.ctx, "a", metav1.DeleteOptions{}))
			d.deleted(stream, "a")

			l.updateConfigMap("untouched", "2")
			d.drop()
			d.phase(b, "gone v2")
			for _, gone := range []string{"b", "c", "d"} {
				d.deleted(stream, gone) // the API server deletes them before it gives up the definition
			}
			r, err := b.Readiness(l.ctx)
			must(t, err)
			missed := slices.ContainsFunc(r.Reasons, func(reason harness.Reason) bool { return strings.Contains(reason.What, d.name()) })
			if missed != (name == "by its name") {
				t.Errorf("only a resource that is named is missed: %+v", r)
			}

			d.define("v1:stored")
			d.create("v1", "a")
			d.await(stream, "added a v1")
			d.phase(b, "watching v1")
			l.deleteConfigMap("untouched")
			l.untouched(stream, ledger)
			t.Logf("reported: %q", d.await(stream, "added a v1"))
			l.stop(b)
		})
	}
}

// untouched judges the resource that nothing happened to: complete, without a gap, and listed once.
func (l *lab) untouched(r reader, ledger *truth.Ledger) {
	l.t.Helper()
	events := l.complete("config maps", r, ledger, check.Options{
		Informers: informerOf("app", truth.Core("configmaps", l.namespace)),
		Only:      func(resource, _, _ string) bool { return resource == "configmaps" },
	})
	var marks []string
	for _, e := range events {
		if !e.AboutObject() && e.GroupResource() == "configmaps" {
			marks = append(marks, e.Op())
		}
	}
	if !slices.Equal(marks, []string{"synced"}) {
		l.t.Errorf("of the informer of config maps the stream reports %q", marks)
	}
}
