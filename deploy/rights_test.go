package deploy_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubebridge/bridge/internal/kube"
)

// bridgeBinary is the bridge of this tree, static, as it goes into the image.
var bridgeBinary = sync.OnceValues(func() (string, error) { return buildBridge("bridge", "") })

// buildBridge builds it under a file name, as a version.
func buildBridge(name, version string) (string, error) {
	out := filepath.Join(workDir, name)
	ldflags := "-s -w -X main.release=" + version
	build := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-ldflags", ldflags, "-o", out, "./cmd/bridge")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, said)
	}
	return out, nil
}

// rbacOf is what `bridge rbac` prints for a configuration.
func rbacOf(t *testing.T, configuration string, args ...string) string {
	t.Helper()
	binary, err := bridgeBinary()
	must(t, err)
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	must(t, os.WriteFile(file, []byte(configuration), 0o600))
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"rbac", "--config", file}, args...)...)
	cmd.Env = append(os.Environ(), "KAFKA_PASSWORD=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bridge rbac: %v\n%s", err, stderr.String())
	}
	return string(out)
}

// rightsOf are what the roles among objects allow to a service account by their bindings, each
// right once and without what another one covers.
func rightsOf(t *testing.T, list []*unstructured.Unstructured, account string) []string {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, o := range list {
		if o.GetKind() == "Role" || o.GetKind() == "ClusterRole" {
			rules[o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName()] = as[rbacv1.ClusterRole](t, o).Rules
		}
	}
	rights := map[kube.Right]bool{}
	for _, o := range list {
		if o.GetKind() != "RoleBinding" && o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		b := as[rbacv1.ClusterRoleBinding](t, o)
		if len(b.Subjects) != 1 || b.Subjects[0].Namespace+"/"+b.Subjects[0].Name != account {
			t.Errorf("%s %s is for %v, not for %s", o.GetKind(), o.GetName(), b.Subjects, account)
		}
		if o.GetKind() == "RoleBinding" && o.GetNamespace() == "" {
			t.Errorf("RoleBinding %s has no namespace", o.GetName())
		}
		bound, ok := rules[b.RoleRef.Kind+"/"+o.GetNamespace()+"/"+b.RoleRef.Name]
		if !ok {
			t.Errorf("%s %s binds a role that is not there", o.GetKind(), o.GetName())
		}
		for _, r := range bound {
			addRights(rights, r, o.GetNamespace())
		}
	}
	return textsOf(rights)
}

func addRights(rights map[kube.Right]bool, r rbacv1.PolicyRule, namespace string) {
	names := r.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				for _, name := range names {
					rights[kube.Right{Verb: verb, Group: group, Resource: resource, Name: name, Namespace: namespace}] = true
				}
			}
		}
	}
}

func textsOf(rights map[kube.Right]bool) []string {
	var list []string
	for r := range rights {
		covered := slices.ContainsFunc(slices.Collect(maps.Keys(rights)), func(other kube.Right) bool { return other != r && other.Covers(r) })
		if !covered {
			list = append(list, r.String())
		}
	}
	slices.Sort(list)
	return list
}

// rightsConfiguration is the configuration of values as far as rights depend on it.
func rightsConfiguration(t *testing.T, v values) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	must(t, err)
	config := maps.Clone(v["config"].(map[string]any))
	if config["informers"] == nil {
		config["informers"] = readValues(t, string(text))["config"].(map[string]any)["informers"]
	}
	out, err := yaml.Marshal(config)
	must(t, err)
	return string(out)
}

// The chart can't ask the bridge while it renders, so it finds the rights by itself: they must be
// the same.
func TestChartRights(t *testing.T) {
	all := cases(t)
	all["versions and groups"] = readValues(t, `config: {informers: [{name: a, resources: [Pods, deployments.v1.apps, pods.v1, things.v2.example.org, "*.example.com"]}], sinks: [{name: s, stdout: {}}]}`)
	all["names"] = readValues(t, `config: {informers: [
		{name: a, resources: [secrets], fieldSelector: "metadata.name=x,metadata.namespace=y"},
		{name: b, resources: [secrets], fieldSelector: "metadata.name==z", namespaces: [shop]},
		{name: c, resources: [configmaps], fieldSelector: "metadata.name!=z"}], sinks: [{name: s, stdout: {}}]}`)
	all["excluded"] = readValues(t, `config: {informers: [{name: a,
		resources: ["*.apps", "*.batch", secrets, events, pods, services, deployments.v1.apps],
		exclude: [po, Secret.v1, events.events.k8s.io, deployments.apps, "*.batch"]}], sinks: [{name: s, stdout: {}}]}`)
	all["short names"] = readValues(t, `config: {informers: [{name: a,
		resources: [configmaps, endpoints, events, limitranges, namespaces, nodes, persistentvolumeclaims,
			persistentvolumes, pods, podtemplates, replicationcontrollers, resourcequotas, serviceaccounts,
			services, secrets],
		exclude: [cm, ep, ev, limits, ns, "no", pvc, pv, po, rc, quota, sa, svc]}], sinks: [{name: s, stdout: {}}]}`)
	all["covered"] = readValues(t, `config: {informers: [{name: a, resources: ["*"]}, {name: b, resources: [pods], namespaces: [shop]}], sinks: [{name: s, stdout: {}}]}`)
	for name, v := range all {
		if name == "memory" || name == "given-rights" {
			continue // they don't ask for it
		}
		t.Run(name, func(t *testing.T) {
			list := objects(t, mustRender(t, v))
			name := find(t, list, "ServiceAccount", "").GetName()
			account := namespace + "/" + name
			configuration := rightsConfiguration(t, v)
			printed := objects(t, rbacOf(t, configuration, "--offline", "--namespace", namespace, "--service-account", name))
			got, want := rightsOf(t, list, account), rightsOf(t, printed, account)
			if len(want) < 3 || !equal(got, want) {
				t.Errorf("the chart gives\n  %s\nbridge rbac prints\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

// Where the chart can't find the rights, the bridge's own words go in as values, and come out as
// they went in; those for another selection are refused.
func TestGivenRights(t *testing.T) {
	for name, v := range cases(t) {
		if name == "memory" || name == "given-rights" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			configuration := rightsConfiguration(t, v)
			given := readValues(t, rbacOf(t, configuration, "--offline", "--output", "helm-values", "--namespace", namespace))
			v["rbac"] = given["rbac"]
			list := objects(t, mustRender(t, v))
			name := find(t, list, "ServiceAccount", "").GetName()
			want := objects(t, rbacOf(t, configuration, "--offline", "--namespace", namespace, "--service-account", name))
			if got, want := rightsOf(t, list, namespace+"/"+name), rightsOf(t, want, namespace+"/"+name); !equal(got, want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
			}
		})
	}
}

// Replicas may write their leases.
func TestLeaseRights(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "ci", "standby-values.yaml"))
	must(t, err)
	rendered, err := renderWith(t, readValues(t, string(text)), func(c chart.Charter, v map[string]any, o common.ReleaseOptions, k *common.Capabilities) (common.Values, error) {
		return util.ToRenderValuesWithSchemaValidation(c, v, o, k, true) // of a bridge that does not know it yet
	})
	must(t, err)
	got := rightsOf(t, objects(t, rendered), namespace+"/bridge")
	want := []string{
		"create leases.coordination.k8s.io in namespace streaming",
		"get leases.coordination.k8s.io/shop-bridge in namespace streaming",
		"get leases.coordination.k8s.io/shop-bridge-progress in namespace streaming",
		"get namespaces/kube-system",
		"list configmaps",
		"list pods",
		"update leases.coordination.k8s.io/shop-bridge in namespace streaming",
		"update leases.coordination.k8s.io/shop-bridge-progress in namespace streaming",
		"watch configmaps",
		"watch pods",
	}
	if !equal(got, want) {
		t.Errorf("got\n  %s", strings.Join(got, "\n  "))
	}
}

// A role can't subtract, so "*" without Secrets names what it allows. So does "*.", which the
// bridge refuses at its start, when the role is there already.
func TestExcludedSecrets(t *testing.T) {
	for name, informer := range map[string]string{
		"everywhere":        `resources: ["*"], exclude: [secrets, events]`,
		"in a namespace":    `resources: ["*"], exclude: [leases.coordination.k8s.io, Secret.v1], namespaces: [shop]`,
		"of one name":       `resources: ["*"], exclude: [secrets], fieldSelector: metadata.name=x`,
		"of two wildcards":  `resources: ["*", "*.apps"], exclude: [secrets]`,
		"of the core group": `resources: ["*.", deployments.apps], exclude: [secrets]`,
		"by a singular":     `resources: ["*.", deployments.apps], exclude: [Secret, po]`,
		"by a version":      `resources: ["*.", "*.apps"], exclude: [SECRETS.v1.]`,
		"by a dot":          `resources: ["*.", "*.apps"], exclude: [secrets.]`,
		"beside its name":   `resources: ["*.", secrets, "*.apps"], exclude: [secrets]`,
	} {
		t.Run(name, func(t *testing.T) {
			v := readValues(t, "config: {informers: [{name: a, "+informer+"}], sinks: [{name: s, stdout: {}}]}")
			list := objects(t, mustRender(t, v))
			rights := rightsOf(t, list, namespace+"/bridge")
			text := strings.Join(rights, "\n")
			for _, r := range rights {
				if strings.Contains(r, "secrets") || strings.Contains(r, "*.*") || strings.Contains(r, "* in all groups") {
					t.Errorf("it allows to read Secrets: %s", r)
				}
			}
			for _, want := range []string{"configmaps", "apps"} {
				if !strings.Contains(text, want) {
					t.Errorf("it does not allow %s:\n%s", want, text)
				}
			}
			for _, o := range list {
				if kind := o.GetKind(); kind != "Role" && kind != "ClusterRole" {
					continue
				}
				for _, rule := range as[rbacv1.ClusterRole](t, o).Rules {
					core := slices.Contains(rule.APIGroups, "") || slices.Contains(rule.APIGroups, "*")
					if core && (slices.Contains(rule.Resources, "*") || slices.Contains(rule.Resources, "secrets")) {
						t.Errorf("a rule covers Secrets: %+v", rule)
					}
				}
			}
			if got := strings.Contains(text, "events"); got == (name == "everywhere") && !strings.Contains(text, "events.k8s.io") {
				t.Errorf("Events are allowed: %v", got)
			}
		})
	}
	t.Run("the whole group", func(t *testing.T) {
		for _, exclude := range []string{`["*."]`, `["*"]`, "[secrets]"} {
			v := readValues(t, `config: {informers: [{name: a, resources: [secrets], exclude: `+exclude+`},
				{name: b, resources: ["*", "*."], exclude: `+exclude+`}], sinks: [{name: s, stdout: {}}]}`)
			for _, r := range rightsOf(t, objects(t, mustRender(t, v)), namespace+"/bridge") {
				if strings.Contains(r, "secrets") || r == "list *" || strings.Contains(r, "*.*") {
					t.Errorf("%s: it allows to read Secrets: %s", exclude, r)
				}
			}
		}
	})
	t.Run("other resources of the core group", func(t *testing.T) {
		v := readValues(t, `config: {informers: [{name: a, resources: ["*."], exclude: [po, cm, ev]}],
			sinks: [{name: s, stdout: {}}]}`)
		rights := strings.Join(rightsOf(t, objects(t, mustRender(t, v)), namespace+"/bridge"), "\n")
		if !strings.Contains(rights, "list secrets") || strings.Contains(rights, "list pods") ||
			strings.Contains(rights, "configmaps") || strings.Contains(rights, "events") {
			t.Error(rights)
		}
	})
	t.Run("by a variable", func(t *testing.T) {
		_, err := render(t, readValues(t, `config: {informers: [{name: a, resources: ["*"],
			exclude: ["${WHAT}"]}], sinks: [{name: s, stdout: {}}]}`))
		const want = "config.informers[0].exclude: what a variable holds is not known here"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	})
	t.Run("a named Secret stays", func(t *testing.T) {
		v := readValues(t, `config: {informers: [
			{name: a, resources: ["*"], exclude: [secrets]},
			{name: b, resources: [secrets], namespaces: [shop]}], sinks: [{name: s, stdout: {}}]}`)
		rights := strings.Join(rightsOf(t, objects(t, mustRender(t, v)), namespace+"/bridge"), "\n")
		if strings.Count(rights, "secrets") != 2 {
			t.Errorf("list and watch on Secrets in shop are not the only rights to them:\n%s", rights)
		}
	})
}

// Who installs the chart learns what the role can't express.
func TestNotesOfExclude(t *testing.T) {
	for name, c := range map[string]struct {
		informer     string
		groups, more bool
	}{
		"nothing is excluded": {`resources: ["*"]`, false, false},
		"Secrets":             {`resources: ["*"], exclude: [secret, pods.v1]`, true, false},
		"another group":       {`resources: ["*.apps"], exclude: [deployments.apps]`, false, true},
		"both":                {`resources: ["*"], exclude: [Secret.v1, deployments.v1.apps, "*.batch"]`, true, true},
		"no wildcard":         {`resources: [pods], exclude: [secrets, deployments.apps]`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			notes, err := renderNotes(t, readValues(t,
				"config: {informers: [{name: a, "+c.informer+"}], sinks: [{name: s, stdout: {}}]}"))
			must(t, err)
			if got := strings.Contains(notes, `config.informers has "*" without Secrets`); got != c.groups {
				t.Errorf("it says that groups are named: %v\n%s", got, notes)
			}
			if got := strings.Contains(notes, ".apps, though config excludes it"); got != c.more {
				t.Errorf("it says that something can't be taken out: %v\n%s", got, notes)
			}
		})
	}
}
