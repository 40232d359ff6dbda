package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deep makes a thing of so many levels, its managed fields not counted.
func (d *definition) deep(version, name string, levels int) {
	d.t.Helper()
	var spec any = map[string]any{}
	for range levels - 2 {
		spec = []any{spec}
	}
	_, err := d.things(version).Create(d.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": d.group + "/" + version, "kind": "Thing", "metadata": map[string]any{"name": name}, "spec": spec,
	}}, metav1.CreateOptions{})
	must(d.t, err)
}

func TestDepth(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	d := l.definition()
	d.define("v1:stored")
	d.create("v1", "a")
	d.deep("v1", "listed", 9_999)
	b := l.bridge("bridge", `informers: [{name: app, resources: ["things.${GROUP}"], namespaces: ["${NS}"]}]`+embedded, with(map[string]string{"GROUP": d.group}))
	stream := jetStream(b)
	l.start(b)
	d.await(stream, "added a v1")

	d.deep("v1", "c", 1_000)
	for _, levels := range []int{1_001, 9_997, 9_998, 9_999, 10_000} {
		d.deep("v1", fmt.Sprint("deep", levels), levels)
	}
	d.create("v1", "b")
	d.await(stream, "added b v1")
	must(t, d.things("v1").Delete(l.ctx, "deep9999", metav1.DeleteOptions{}))
	d.create("v1", "d")

	all := d.await(stream, "added d v1")
	var quarantined int
	for _, words := range all {
		if strings.HasPrefix(words, "quarantined") {
			quarantined++
		}
	}
	want := []string{"added a v1", "added c v1", "added b v1", "added d v1"}
	reported := slices.DeleteFunc(slices.Clone(all), func(words string) bool { return !slices.Contains(want, words) })
	if quarantined != 6 || !slices.Equal(reported, want) || slices.ContainsFunc(all, func(words string) bool { return strings.HasPrefix(words, "gap") }) {
		t.Errorf("the stream reports %q", all)
	}
	l.stop(b)
}
