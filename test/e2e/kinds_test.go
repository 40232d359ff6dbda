package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// Custom resources are delivered as built-in ones are.
func TestCustomResources(t *testing.T) {
	t.Parallel()
	c := live(t)
	installWidgets(t, c)
	l := newLab(t, c)
	api := c.dynamic.Resource(widgets).Namespace(l.namespace)
	create := func(name string, spec map[string]any) {
		t.Helper()
		_, err := api.Create(l.ctx, widget(name, spec), metav1.CreateOptions{})
		must(t, err)
	}
	create("exists-before", map[string]any{"size": int64(1)})
	create("exists.before.with.dots", map[string]any{"size": int64(1)})
	collection := truth.Named("widgets", "example.com", "v1", l.namespace)
	ledger := l.witness(collection)
	b := l.bridge("bridge", `informers: [{name: crs, resources: [widgets.example.com], namespaces: ["${NS}"]}]`+embedded)
	l.start(b)

	create("plain", map[string]any{"a": map[string]any{"deep": []any{int64(1), 2.5, "three", nil, true}}})
	create("name.with.dots", map[string]any{"size": int64(9007199254740993), "text": "a\nb\u2028c"})
	for i := range 5 {
		_, err := api.Patch(l.ctx, "plain", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"size":%d}}`, i), metav1.PatchOptions{})
		must(t, err)
	}
	must(t, api.Delete(l.ctx, "name.with.dots", metav1.DeleteOptions{}))
	must(t, api.Delete(l.ctx, "exists-before", metav1.DeleteOptions{}))

	l.complete("widgets", jetStream(b), ledger, check.Options{Informers: informerOf("crs", collection)})
	enough(t, ledger, widgetsName, 2, 11)
	l.stop(b)
}

// Cluster-scoped objects with any name are delivered.
func TestClusterScopedNames(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	collections := []truth.Collection{truth.Cluster("clusterroles", rbacv1.GroupName, "v1"), truth.Cluster("nodes", "", "v1"), truth.Cluster("namespaces", "", "v1")}
	ledger := l.witness(collections...)
	b := l.bridge("bridge", `informers: [{name: cluster, resources: [clusterroles, nodes, namespaces]}]`+embedded)
	l.start(b)

	role := "system:" + l.namespace + ":a.b.c"
	roles := l.client.RbacV1().ClusterRoles()
	_, err := roles.Create(l.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}}, metav1.CreateOptions{})
	must(t, err)
	node := "ip-10-0-0-1." + l.namespace + ".internal"
	nodes := l.client.CoreV1().Nodes()
	_, err = nodes.Create(l.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	must(t, err)
	for i := range 3 {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"round":"%d"}}}`, i)
		_, err = nodes.Patch(l.ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
		_, err = roles.Patch(l.ctx, role, types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
	}
	must(t, nodes.Delete(l.ctx, node, metav1.DeleteOptions{}))
	must(t, roles.Delete(l.ctx, role, metav1.DeleteOptions{}))

	events := l.complete("cluster-scoped objects", jetStream(b), ledger, check.Options{
		Informers: informerOf("cluster", collections...),
		// Tests that run beside this one make namespaces and roles of theirs.
		Only: func(_, _, name string) bool {
			return strings.HasPrefix(name, "system:") || strings.HasSuffix(name, ".internal")
		},
	})
	colons, nodeEvents := 0, 0
	for i := range events {
		if strings.Contains(events[i].Attribute("name"), ":") {
			colons++
		}
		if events[i].Attribute("name") == node {
			nodeEvents++
		}
	}
	if colons < 50 || nodeEvents < 5 {
		t.Errorf("%d events are about names with colons, %d about the node: the test shows nothing", colons, nodeEvents)
	}
	l.stop(b)
}

// A controller that replaces an object under its name is the case in which a key alone does not
// distinguish one object from the other.
func TestRecreatedObject(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	collection := truth.Core("configmaps", l.namespace)
	ledger := l.witness(collection)
	b := l.bridge("bridge", `informers: [{name: app, resources: [configmaps], namespaces: ["${NS}"]}]`+jetStreamAndKafka,
		with(map[string]string{"KAFKA": startKafka(t).ListenAddrs()[0]}))
	l.start(b)

	const lives = 20
	for i := range lives {
		l.createConfigMap("phoenix", fmt.Sprint(i))
		l.updateConfigMap("phoenix", fmt.Sprint(i, "again"))
		l.deleteConfigMap("phoenix")
	}
	// The comparison is by name: the delete of one life has to come before the next begins.
	o := check.Options{Informers: informerOf("app", collection)}
	l.complete("JetStream", jetStream(b), ledger, o)
	enough(t, ledger, "configmaps", lives, 3*lives)
	l.stop(b)
}
