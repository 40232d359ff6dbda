package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// grant makes a service account with what `bridge rbac` prints for a configuration, after change,
// and gives its kubeconfig to the lab.
func (l *lab) grant(yamlConfig string, change func(kind string, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule) {
	l.t.Helper()
	name := "rights-" + l.namespace + "-" + strings.ToLower(l.t.Name()[strings.LastIndexByte(l.t.Name(), '/')+1:])
	name = strings.Trim(strings.ReplaceAll(name, "_", "-")[:min(len(name), 60)], "-")
	_, err := l.client.CoreV1().ServiceAccounts(l.namespace).Create(l.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(l.t, err)
	b := l.bridge("rbac", yamlConfig) // with rights to see what there is
	ctx, cancel := context.WithTimeout(l.ctx, testPatience)
	defer cancel()
	roles, err := b.Output(ctx, "rbac", "--name", name, "--namespace", l.namespace, "--service-account", name)
	must(l.t, err)
	l.t.Logf("the roles:\n%s", roles)
	l.apply(roles, change)
	answer, err := l.client.CoreV1().ServiceAccounts(l.namespace).CreateToken(l.ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(l.t, err)
	must(l.t, l.WriteKubeconfig(l.kubeconfig(), answer.Status.Token))
}

// apply creates what is in a file of YAML.
func (l *lab) apply(text string, change func(kind string, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule) {
	l.t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var object struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
			RoleRef           *rbacv1.RoleRef     `json:"roleRef,omitempty"`
			Subjects          []rbacv1.Subject    `json:"subjects,omitempty"`
			Rules             []rbacv1.PolicyRule `json:"rules,omitempty"`
		}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return
		}
		must(l.t, err)
		if change != nil && object.RoleRef == nil {
			object.Rules = change(object.Kind, object.Rules)
		}
		l.create(&object, object.Kind, object.Namespace)
	}
}

func (l *lab) create(object any, kind, namespace string) {
	l.t.Helper()
	raw, err := json.Marshal(object)
	must(l.t, err)
	var content map[string]any
	must(l.t, json.Unmarshal(raw, &content))
	gvr := schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "v1", Resource: strings.ToLower(kind) + "s"}
	_, err = l.dynamic.Resource(gvr).Namespace(namespace).Create(l.ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	must(l.t, err)
}

// without takes a verb on a resource out of the rules.
func without(verb, resource string) func(string, []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	return func(_ string, rules []rbacv1.PolicyRule) (list []rbacv1.PolicyRule) {
		for _, r := range rules {
			rest := r
			if i := slices.Index(r.Resources, resource); i >= 0 && slices.Contains(r.Verbs, verb) {
				rest.Resources = slices.Delete(slices.Clone(r.Resources), i, i+1)
				r.Resources = []string{resource}
				r.Verbs = slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool { return v == verb })
				if len(r.Verbs) > 0 {
					list = append(list, r)
				}
			}
			if len(rest.Resources) > 0 {
				list = append(list, rest)
			}
		}
		return list
	}
}

const needsRights = `
informers:
  - {name: some, resources: [configmaps, services], namespaces: ["${NS}"]}
  - {name: everywhere, resources: [ingressclasses.networking.k8s.io]}
  - {name: one, resources: [secrets], namespaces: ["${NS}"], fieldSelector: metadata.name=one}
  - {name: chosen, resources: [serviceaccounts], namespaceSelector: "kubernetes.io/metadata.name=${NS}"}
`

// The printed roles are enough.
func TestPrintedRoles(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	l.grant(needsRights+embedded, nil)
	maps := truth.Core("configmaps", l.namespace)
	ledger := l.witness(maps)
	b := l.bridge("bridge", needsRights+embedded)
	said, err := b.Output(l.ctx, "validate", "--live")
	if err != nil || !strings.Contains(said, "allows to read them (13 rights)") {
		t.Errorf("validate --live: %v, %s", err, said)
	}
	l.start(b)
	l.createConfigMap("a", "1")
	l.stop(b)
	l.updateConfigMap("a", "2")
	l.start(b) // this time by a probe and a watch
	l.deleteConfigMap("a")
	l.complete("config maps", jetStream(b), ledger, check.Options{
		Informers: informerOf("some", maps), Only: func(resource, _, _ string) bool { return resource == "configmaps" },
	})
	if _, others := b.Log.Entries(); strings.Contains(b.Log.String(), "forbidden") {
		t.Errorf("something was forbidden:\n%s%s", b.Log.Tail(30), others)
	}
	l.stop(b)
}

// The printed roles for all resources are enough.
func TestPrintedRolesOfEverything(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{
		"in a namespace":   `informers: [{name: app, resources: ["*"], exclude: [leases, events], namespaces: ["${NS}"]}]`,
		"in the whole API": `informers: [{name: app, resources: ["*"], exclude: [leases, events]}]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, still(t)) // nobody installs definitions there meanwhile
			l.grant(yaml+embedded, nil)
			b := l.bridge("bridge", yaml+embedded)
			l.start(b)
			l.stop(b)
		})
	}
}

// Each right that is missing is named.
func TestEachMissingRight(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	token := l.Token
	for _, c := range []struct{ verb, resource string }{
		{"watch", "configmaps"},
		{"list", "configmaps"},
		{"watch", "services"},
		{"list", "services"},
		{"watch", "ingressclasses"},
		{"list", "ingressclasses"},
		{"watch", "secrets"},
		{"list", "secrets"},
		{"watch", "serviceaccounts"},
		{"list", "serviceaccounts"},
		{"watch", "namespaces"},
		{"list", "namespaces"},
	} {
		t.Run(c.verb+"-"+c.resource, func(t *testing.T) {
			l := l.in(t)
			must(t, l.WriteKubeconfig(l.kubeconfig(), token))
			l.grant(needsRights+embedded, without(c.verb, c.resource))
			b := l.bridge("bridge", needsRights+embedded)
			_, err := b.Output(l.ctx, "validate", "--live")
			want := []string{"exit status 2", "bridge.yaml:", "not allowed to " + c.verb + " " + c.resource, "has 1 problem\n"}
			if err == nil || !containsAll(err.Error(), want) {
				t.Errorf("validate --live: %v", err)
			}
			must(t, b.Start())
			l.saysNotReady(b, partWith(c.verb, c.resource, l.namespace), c.verb, c.resource, "bridge rbac")
			l.onlyReason(b, c.resource)
			l.stop(b)
			if c.verb == "list" { // now it has to list, if only to probe
				must(t, b.Start())
				l.saysNotReady(b, partWith(c.verb, c.resource, l.namespace), c.verb, c.resource, "bridge rbac")
				l.stop(b)
			}
		})
	}
	t.Run("get-namespaces", func(t *testing.T) {
		l := l.in(t)
		must(t, l.WriteKubeconfig(l.kubeconfig(), token))
		l.grant(needsRights+embedded, without("get", "namespaces"))
		b := l.bridge("bridge", needsRights+embedded)
		if _, err := b.Output(l.ctx, "validate", "--live"); err == nil || !containsAll(err.Error(), []string{"kubernetes", "get namespaces/kube-system"}) {
			t.Errorf("validate --live: %v", err)
		}
		l.start(b) // its name is configured, so it needs no identity
		if log := b.Log.String(); !containsAll(log, []string{"kube-system can't be read", "get namespaces", "bridge rbac"}) {
			t.Errorf("its log does not name the right:\n%s", b.Log.Tail(10))
		}
		l.stop(b)
	})
}

// partWith is the part of a bridge with needsRights that reports a right that it misses.
func partWith(verb, resource, namespace string) string {
	switch resource {
	case "ingressclasses":
		return "informer everywhere/ingressclasses.networking.k8s.io"
	case "secrets":
		return "informer one/secrets/" + namespace
	case "namespaces":
		if verb == "watch" {
			return "namespaces"
		}
		fallthrough // a list is needed after a gap; that it is not allowed was asked for
	case "serviceaccounts":
		return "informer chosen/serviceaccounts"
	}
	return "informer some/" + resource + "/" + namespace
}

// onlyReason fails when a bridge is not ready for another reason than a resource.
func (l *lab) onlyReason(b *harness.Bridge, resource string) {
	l.t.Helper()
	eventually(l.t, "the others are ready", testPatience, func() (others []string) {
		r, err := b.Readiness(l.ctx)
		if err != nil {
			return []string{err.Error()}
		}
		for _, reason := range r.Reasons {
			if !strings.Contains(reason.Message, resource) {
				others = append(others, reason.What+": "+reason.Message)
			}
		}
		return others
	})
}
