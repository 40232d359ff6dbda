package e2e_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// hostile is a tenant that writes what the API server takes and a bridge may not.
type hostile struct {
	*lab          // with the tenant's namespace
	things string // group of things, where the other tenant has some too
	own    *definition
	kinds  []abuse

	mu    sync.Mutex
	taken map[string]int // by name: how often the API server took it; guarded by mu
}

// abuse is one way, repeated with a pause. What the API server refuses is not counted.
type abuse struct {
	name  string
	pause time.Duration
	do    func(ctx context.Context, round int) error
}

func newHostile(l *lab, group string) *hostile {
	l.t.Helper()
	theirs := *l
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "evil-"}}
	ns, err := l.client.CoreV1().Namespaces().Create(l.ctx, ns, metav1.CreateOptions{})
	must(l.t, err)
	theirs.namespace = ns.Name
	h := &hostile{lab: &theirs, things: group, taken: map[string]int{}}
	h.own = h.definition()
	h.own.define("v1:stored")
	h.kinds = []abuse{
		{"deep objects", 200 * time.Millisecond, h.deep},
		{"wide objects", 500 * time.Millisecond, h.wide},
		{"wide secrets", 500 * time.Millisecond, h.wideSecrets},
		{"huge objects", 500 * time.Millisecond, h.huge},
		{"patches of long paths", time.Second, h.longPaths},
		{"odd names", 200 * time.Millisecond, h.oddNames},
		{"duplicate keys and bad UTF-8", 200 * time.Millisecond, h.rawBodies},
		{"flood", 10 * time.Millisecond, h.flood},
		{"namespaces", 100 * time.Millisecond, h.namespaces},
		{"definitions", time.Second, h.definitions},
		{"topics by label", 100 * time.Millisecond, h.topics},
	}
	only := regexp.MustCompile(*abuseOnly)
	h.kinds = slices.DeleteFunc(h.kinds, func(a abuse) bool { return !only.MatchString(a.name) })
	return h
}

// abuse does everything at once until ctx ends. wait returns when all of it has ended.
func (h *hostile) abuse(ctx context.Context) (wait func()) {
	var g sync.WaitGroup
	for _, what := range h.kinds {
		g.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				if err := what.do(ctx, round); err == nil {
					h.mu.Lock()
					h.taken[what.name]++
					h.mu.Unlock()
				} else if round < 3 && ctx.Err() == nil {
					h.t.Logf("%s: %v", what.name, err)
				}
				time.Sleep(what.pause)
			}
		})
	}
	return g.Wait
}

func thing(group, name string, spec any) *unstructured.Unstructured {
	if n, ok := spec.(int); ok {
		spec = map[string]any{"size": int64(n)}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": "Thing",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"team": "good"}}, "spec": spec,
	}}
}

// hostileThing has no team.
func hostileThing(group, name string, spec any) *unstructured.Unstructured {
	o := thing(group, name, spec)
	o.SetLabels(nil)
	return o
}

// shared are things of the other tenant's group, in the hostile namespace: one watch has both.
func (h *hostile) shared() dynamic.ResourceInterface {
	return h.dynamic.Resource(schema.GroupVersionResource{Group: h.things, Version: "v1", Resource: "things"}).Namespace(h.namespace)
}

// put creates or replaces a thing.
func (h *hostile) put(ctx context.Context, name string, spec any) error {
	o := hostileThing(h.things, name, spec)
	before, err := h.shared().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		_, err = h.shared().Create(ctx, o, metav1.CreateOptions{})
		return err
	}
	o.SetResourceVersion(before.GetResourceVersion())
	_, err = h.shared().Update(ctx, o, metav1.UpdateOptions{})
	return err
}

// deep objects have up to the 10,000 levels that the API server takes.
func (h *hostile) deep(ctx context.Context, round int) error {
	levels := []int{900, 1_001, 5_000, 9_997, 9_998, 9_999, 10_000}[round%7]
	var spec any = map[string]any{}
	for range levels - 2 {
		spec = []any{spec}
	}
	name := fmt.Sprint("deep-", round%20)
	if round >= 20 {
		_ = h.shared().Delete(ctx, name, metav1.DeleteOptions{})
	}
	_, err := h.shared().Create(ctx, hostileThing(h.things, name, spec), metav1.CreateOptions{})
	return err
}

// wide objects have tens of thousands of keys, all renamed by each update.
func (h *hostile) wide(ctx context.Context, round int) error {
	data := make(map[string]string, 30_000)
	for i := range 30_000 {
		data[fmt.Sprintf("k%d-%d", round, i)] = ""
	}
	return h.putMap(ctx, "wide", data)
}

// wideSecrets have as many values to redact as fit, and owners behind annotations: each annotation
// is replaced, and moves each string behind it. All owners are one that exists: for each other the
// garbage collector would ask the API server.
func (h *hostile) wideSecrets(ctx context.Context, round int) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("wide-", round%2)}}
	if round%2 == 0 {
		secret.Data = make(map[string][]byte, 30_000)
		for i := range 30_000 {
			secret.Data[fmt.Sprintf("k%d-%d", round, i)] = nil
		}
	} else {
		secret.Annotations = make(map[string]string, 10_000)
		for i := range 10_000 { // names and values of 256 KiB at most
			secret.Annotations[fmt.Sprintf("a%d-%d", round, i)] = ""
		}
		owner, err := h.client.CoreV1().ConfigMaps(h.namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		secret.OwnerReferences = slices.Repeat([]metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID,
		}}, 5_000)
	}
	secrets := h.client.CoreV1().Secrets(h.namespace)
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err == nil {
		return nil
	}
	_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// huge objects are about as large as etcd takes them.
func (h *hostile) huge(ctx context.Context, round int) error {
	text := strings.Repeat(string(rune('a'+round%26)), 1_000_000)
	if round%2 == 0 {
		return h.putMap(ctx, "huge", map[string]string{"text": text})
	}
	return h.put(ctx, "huge", map[string]any{"text": text, "quotes": strings.Repeat(`"\`, 50_000)})
}

func (h *hostile) putMap(ctx context.Context, name string, data map[string]string) error {
	maps := h.client.CoreV1().ConfigMaps(h.namespace)
	if _, err := maps.Update(ctx, configMap(name, data), metav1.UpdateOptions{}); err == nil {
		return nil
	}
	_, err := maps.Create(ctx, configMap(name, data), metav1.CreateOptions{})
	return err
}

// longPaths have many leaves below a key so long that a JSON Patch of all would have gigabytes.
func (h *hostile) longPaths(ctx context.Context, round int) error {
	leaves := map[string]any{}
	for i := range 20_000 {
		leaves[fmt.Sprint("a", i)] = int64(round)
	}
	return h.put(ctx, "paths", map[string]any{strings.Repeat("~/", 150_000): leaves})
}

// oddNames of Roles may hold anything but / and %.
func (h *hostile) oddNames(ctx context.Context, round int) error {
	names := []string{
		"a\x00b", ".fence", ".deadletter.x", "a b", "*", ">", "a.b.>", "\x1b]0;owned\x07", "ütf-8 ✓", "{name}", "a\r\nNats-Msg-Id: x",
		"_fence", "$JS.API.STREAM.DELETE.K8S", "..", strings.Repeat("n", 20_000),
	}
	name := names[round%len(names)]
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if round >= len(names) {
		role.Name = fmt.Sprint(name, "-", round)
	}
	_, err := h.client.RbacV1().Roles(h.namespace).Create(ctx, role, metav1.CreateOptions{})
	return err
}

// rawBodies are JSON that no client writes.
func (h *hostile) rawBodies(ctx context.Context, round int) error {
	name := fmt.Sprint("raw-", round)
	bodies := []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"a":"1","a":"2"},"data":{"b":"3"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"a":"` + "\xff\xfe\xed\xa0\x80" + `"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","annotations":{"\u0000":"\ud800"}},"data":{"a":"\ud83d\u0000"}}`,
		`{"metadata":{"name":"%s","name":"%[1]s"},"kind":"ConfigMap","apiVersion":"v1"}`,
	}
	return h.client.CoreV1().RESTClient().Post().Namespace(h.namespace).Resource("configmaps").
		Param("fieldValidation", "Ignore").SetHeader("Content-Type", "application/json").
		Body([]byte(fmt.Sprintf(bodies[round%len(bodies)], name))).Do(ctx).Error()
}

// flood changes small objects as fast as its pause lets it.
func (h *hostile) flood(ctx context.Context, round int) error {
	name := fmt.Sprint("flood-", round%10)
	if round < 10 {
		return h.putMap(ctx, name, nil)
	}
	_, err := h.client.CoreV1().ConfigMaps(h.namespace).Patch(ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"data":{"n":"%d"}}`, round), metav1.PatchOptions{})
	return err
}

// namespaces come and go, a hundred names again and again, each with an object in it. A
// namespaceSelector selects them.
func (h *hostile) namespaces(ctx context.Context, round int) error {
	const lives = 5 // rounds
	name := func(round int) string { return fmt.Sprintf("%s-%d", h.namespace, round%100) }
	if round >= lives {
		_ = h.client.CoreV1().Namespaces().Delete(ctx, name(round-lives), metav1.DeleteOptions{})
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(round), Labels: map[string]string{"tenant": "evil"}}}
	if _, err := h.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := h.client.CoreV1().ConfigMaps(ns.Name).Create(ctx, configMap("in", nil), metav1.CreateOptions{})
	return err
}

// definitions change under the bridge: they get versions, lose them, and go.
func (h *hostile) definitions(ctx context.Context, round int) error {
	crds, name := h.own.crds(), h.own.name()
	_, _ = h.own.things("v1").Create(ctx, hostileThing(h.own.group, fmt.Sprint("thing-", round), 1), metav1.CreateOptions{})
	crd, err := crds.Get(ctx, name, metav1.GetOptions{})
	if err != nil { // it was deleted by the round before
		crd = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"group": h.own.group, "scope": "Namespaced", "versions": versions("v1:stored"),
				"names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing"},
			},
		}}
		_, err = crds.Create(ctx, crd, metav1.CreateOptions{})
		return err
	}
	switch round % 4 {
	case 0, 1:
		list := [][]string{{"v1:stored", "v2"}, {"v1:stored", "v2:unserved"}}[round%2]
		if err := unstructured.SetNestedSlice(crd.Object, versions(list...), "spec", "versions"); err != nil {
			return err
		}
		_, err = crds.Update(ctx, crd, metav1.UpdateOptions{})
		return err
	case 2:
		return crds.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return nil
}

// topics are named by labels. None of these exists, so what goes there waits; a thousand in all.
func (h *hostile) topics(ctx context.Context, round int) error {
	if round >= 1_000 {
		return nil
	}
	labelled := configMap(fmt.Sprint("team-", round), nil)
	labelled.Labels = map[string]string{"team": fmt.Sprint("team-", round%200)}
	_, err := h.client.CoreV1().ConfigMaps(h.namespace).Create(ctx, labelled, metav1.CreateOptions{})
	return err
}
