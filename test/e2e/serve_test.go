package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

const kept = `
sinks:
  - {name: kept, history: {}}
`

// The API server at a moment is the truth for the history that is served of that moment.
func TestServe(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	b, d := l.recording()
	l.createConfigMap("changed", "1")
	l.createConfigMap("deleted", "1")
	l.createDeployment("web", 2)
	l.waitRolledOut("web")
	kinds := l.kindsOfNamespaces()
	version, want := l.moment(kinds)
	tables := l.tables(l.Admin())

	l.updateConfigMap("changed", "2")
	l.deleteConfigMap("deleted")
	l.createConfigMap("new", "1")
	l.scale("web", 1)
	l.roll("web", "app:2")
	l.waitRolledOut("web")
	_, last := l.moment(kinds)
	l.createConfigMap("behind-everything", "1")
	l.recorded(b, "cm/behind-everything")

	past := l.served(b, "--at", version, "--speed", "max")
	client, err := dynamic.NewForConfig(past)
	must(t, err)
	t.Run("lists are those of the API server at that moment", func(t *testing.T) {
		got := listed(t, client, l.namespace, kinds)
		for kind, objects := range want {
			if len(got[kind]) != len(objects) {
				t.Errorf("%v: %d objects, want %d", kind, len(got[kind]), len(objects))
			}
			for name, object := range objects {
				if got[kind][name] != object {
					t.Errorf("%v %s:\n%s\nwant\n%s", kind, name, got[kind][name], object)
				}
			}
		}
	})
	t.Run("tables are those of the API server, but for ages", func(t *testing.T) {
		if got := l.tables(past); !maps.Equal(got, tables) {
			t.Errorf("%v\nwant\n%v", got, tables)
		}
	})
	t.Run("an informer syncs and follows to the last state", func(t *testing.T) {
		for _, kind := range []schema.GroupVersionResource{
			{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "pods"}, {Group: "apps", Version: "v1", Resource: "deployments"},
		} {
			want := map[string]string{}
			for name, object := range last[kind] {
				want[name] = versionOfText(object)
			}
			if kind.Resource == "configmaps" {
				o, err := l.dynamic.Resource(kind).Namespace(l.namespace).Get(l.ctx, "behind-everything", metav1.GetOptions{})
				must(t, err)
				want["behind-everything"] = o.GetResourceVersion()
			}
			follows(t, client, kind, l.namespace, want)
		}
	})
	t.Run("kubectl works", func(t *testing.T) { l.kubectlWorks(t) })
	t.Run("kubectl explains as with the API server", func(t *testing.T) { l.kubectlExplains(t, d) })
	l.stop(b)
}

// recording is a bridge that keeps a history, in which a custom resource is too.
func (l *lab) recording() (*harness.Bridge, *definition) {
	l.t.Helper()
	d := l.definition()
	d.define("v1:stored")
	d.describe("v1")
	d.create("v1", "one")
	b := l.bridge("bridge", kept)
	l.start(b)
	return b, d
}

// kindsOfNamespaces are the resources that the bridge watches without a file, of those in
// namespaces.
func (l *lab) kindsOfNamespaces() (kinds []schema.GroupVersionResource) {
	l.t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(l.Admin())
	must(l.t, err)
	lists, err := d.ServerPreferredNamespacedResources()
	must(l.t, err)
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		must(l.t, err)
		for _, r := range list.APIResources {
			if r.Name != "events" && r.Name != "leases" {
				kinds = append(kinds, gv.WithResource(r.Name))
			}
		}
	}
	return kinds
}

// objects are those of each kind, by name.
type objects map[schema.GroupVersionResource]map[string]string

// moment is a version at which nothing changes in the namespace, and what there is.
func (l *lab) moment(kinds []schema.GroupVersionResource) (version string, want objects) {
	l.t.Helper()
	eventually(l.t, "a moment without changes", time.Minute, func() []string {
		want = listed(l.t, l.dynamic, l.namespace, kinds)
		list, err := l.dynamic.Resource(kinds[0]).Namespace(l.namespace).List(l.ctx, metav1.ListOptions{})
		must(l.t, err)
		version = list.GetResourceVersion()
		if again := listed(l.t, l.dynamic, l.namespace, kinds); !maps.EqualFunc(again, want, maps.Equal) {
			return []string{"something changes"}
		}
		return nil
	})
	return version, want
}

// listed are objects less what redaction takes out and managedFields.
func listed(t *testing.T, client dynamic.Interface, namespace string, kinds []schema.GroupVersionResource) objects {
	t.Helper()
	all := objects{}
	for _, kind := range kinds {
		all[kind] = map[string]string{}
		list, err := client.Resource(kind).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("%v: %v", kind, err)
			continue
		}
		for _, o := range list.Items {
			o.SetManagedFields(nil)
			if kind.Resource == "secrets" {
				unstructured.RemoveNestedField(o.Object, "data")
			}
			text, err := json.Marshal(o.Object)
			must(t, err)
			all[kind][o.GetName()] = string(text)
		}
	}
	return all
}

func versionOfText(object string) string {
	var o metav1.PartialObjectMetadata
	_ = json.Unmarshal([]byte(object), &o) // it was marshalled before
	return o.ResourceVersion
}

// served starts bridge serve beside a running bridge, and gives the configuration that it prints. A
// file takes that, so it is whole when standard error speaks of it: two pipes have no order.
func (l *lab) served(b *harness.Bridge, args ...string) *rest.Config {
	l.t.Helper()
	must(l.t, os.Symlink(l.Kubeconfig, filepath.Join(l.dir, "admin.yaml")))
	return l.servedAs("past.yaml", b, args...)
}

// servedAs serves it with a kubeconfig of this name.
func (l *lab) servedAs(name string, b *harness.Bridge, args ...string) *rest.Config {
	l.t.Helper()
	c, _ := l.servedProcess(name, b, args...)
	return c
}

// servedProcess gives the process too.
func (l *lab) servedProcess(name string, b *harness.Bridge, args ...string) (*rest.Config, *exec.Cmd) {
	l.t.Helper()
	binary, err := bridgeBinary()
	must(l.t, err)
	args = append([]string{"serve", "--dir", filepath.Join(b.StateDir, "history"), "-n", l.namespace}, args...)
	path := filepath.Join(l.dir, name)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	must(l.t, err)
	defer out.Close()
	cmd := exec.CommandContext(context.WithoutCancel(l.ctx), binary, args...)
	var errs harness.Log
	cmd.Stdout, cmd.Stderr = out, &errs
	must(l.t, cmd.Start())
	l.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			l.t.Errorf("bridge serve: %v\n%s", err, errs.String())
		}
	})
	eventually(l.t, "the kubeconfig", time.Minute, func() []string {
		if !strings.Contains(errs.String(), "the kubeconfig is on standard output") {
			return []string{errs.String()}
		}
		return nil
	})
	c, err := clientcmd.BuildConfigFromFlags("", path)
	must(l.t, err)
	return c, cmd
}

// recorded waits until a history has an object.
func (l *lab) recorded(b *harness.Bridge, object string) {
	l.t.Helper()
	eventually(l.t, "the history of "+object, time.Minute, func() []string {
		if _, err := b.Output(l.ctx, "show", object, "-n", l.namespace); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

// tables are rows of some kinds as kubectl prints them, without ages.
func (l *lab) tables(c *rest.Config) map[string]string {
	l.t.Helper()
	rows := map[string]string{}
	transport, err := rest.HTTPClientFor(c)
	must(l.t, err)
	for _, path := range []string{"api/v1", "apis/apps/v1"} {
		for _, resource := range map[string][]string{
			"api/v1": {"pods", "services", "configmaps", "serviceaccounts"}, "apis/apps/v1": {"deployments", "replicasets"},
		}[path] {
			var table metav1.Table
			body := accepted(l.t, transport.Do, fmt.Sprintf("%s/%s/namespaces/%s/%s", strings.TrimSuffix(c.Host, "/"), path, l.namespace, resource))
			must(l.t, json.Unmarshal(body, &table))
			for _, row := range table.Rows {
				var cells []string
				for i, d := range table.ColumnDefinitions {
					if d.Name != "Age" && d.Name != "Readiness Gates" && d.Name != "Nominated Node" && d.Name != "Secrets" {
						cells = append(cells, fmt.Sprintf("%s=%v", d.Name, row.Cells[i]))
					}
				}
				rows[fmt.Sprintf("%s %v", resource, row.Cells[0])] = strings.Join(cells, " ")
			}
		}
	}
	return rows
}

// follows fails when an informer does not come to a state.
func follows(t *testing.T, client dynamic.Interface, kind schema.GroupVersionResource, namespace string, want map[string]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil)
	informer := factory.ForResource(kind).Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	eventually(t, fmt.Sprint("the last state of ", kind.Resource), time.Minute, func() []string {
		got := map[string]string{}
		for _, o := range informer.GetStore().List() {
			u, _ := o.(*unstructured.Unstructured)
			got[u.GetName()] = u.GetResourceVersion()
		}
		if !informer.HasSynced() || !maps.Equal(got, want) {
			return []string{fmt.Sprintf("%v, want %v", got, want)}
		}
		return nil
	})
}

// kubectl is a command, of the API server or of what is served, by the name of its file.
func (l *lab) kubectl(t *testing.T, kubeconfig string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(tools(t), "kubectl")
	return exec.CommandContext(t.Context(), path, append([]string{
		"--kubeconfig", filepath.Join(l.dir, kubeconfig), "--cache-dir", filepath.Join(l.dir, "cache-"+kubeconfig),
	}, args...)...)
}

func (l *lab) kubectlWorks(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"get pods", "get pods -o wide", "get deployments,replicasets,configmaps", "get all", "get nodes -o wide", "get pods -A --chunk-size=2",
		"get deployment web -o yaml", "get pods --sort-by=.metadata.name", "describe pods", "describe deployment web", "describe nodes", "api-resources",
		"describe configmaps", "describe replicasets", "describe serviceaccounts", "api-versions",
		"auth can-i list pods", "auth can-i --list", "auth whoami", "get pods --field-selector=status.phase=Running",
		"wait deployment/web --for=condition=Available --timeout=5s",
	} {
		var errs bytes.Buffer
		cmd := l.kubectl(t, "past.yaml", strings.Fields(line)...)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		// the bridge does not record Events here
		warned := strings.ReplaceAll(errs.String(), "Warning: the history has no objects of this resource: none were recorded\n", "")
		if err != nil || len(out) == 0 || warned != "" {
			t.Errorf("kubectl %s: %v\n%s%s", line, err, out, errs.String())
		}
		if slices.Contains([]string{"get pods", "describe deployment web"}, line) && !strings.Contains(string(out), "web") {
			t.Errorf("kubectl %s:\n%s", line, out)
		}
	}
	for line, want := range map[string]string{
		"auth can-i delete pods":                 "no",
		"top pods":                               "Metrics API not available",
		"logs deployment/web":                    "a history has objects, and no log of them",
		"delete configmap changed":               "nothing can be changed",
		"scale deployment web --replicas=3":      "nothing can be changed",
		"get pods --field-selector=spec.image=x": "field label not supported",
	} {
		out, err := l.kubectl(t, "past.yaml", strings.Fields(line)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl %s: %v\n%s\nwant %s", line, err, out, want)
		}
	}
	cmd := l.kubectl(t, "past.yaml", "get", "deployment", "web", "--watch")
	var out, errs harness.Log
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(t, cmd.Start())
	eventually(t, "kubectl get --watch has the scaling down", time.Minute, func() []string {
		if text := out.String(); !strings.Contains(text, "2/2") || !strings.Contains(text, "1/1") {
			return []string{text, errs.String()}
		}
		return nil
	})
	must(t, cmd.Process.Kill())
	if _ = cmd.Wait(); errs.String() != "" { // it was killed
		t.Errorf("kubectl get --watch: %s", errs.String())
	}
}

func (l *lab) kubectlExplains(t *testing.T, d *definition) {
	t.Helper()
	explained := func(kubeconfig string, args ...string) string {
		out, err := l.kubectl(t, kubeconfig, append([]string{"explain"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		return string(out)
	}
	for _, line := range []string{
		"pods --recursive", "deployments.spec.strategy", "nodes.status --recursive", "cronjobs", "clusterroles --recursive", "crd.spec",
		d.name(), d.name() + ".spec --recursive", d.name() + ".spec.size", d.name() + ".metadata", "pods.spec.no-such-field",
	} {
		args := strings.Fields(line)
		got, want := explained("past.yaml", args...), explained("admin.yaml", args...)
		if got != want || got == "" {
			t.Errorf("kubectl explain %s:\n%s\nwant\n%s", line, got, want)
		}
	}
}

// accepted asks for a table.
func accepted(t *testing.T, do func(*http.Request) (*http.Response, error), url string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := do(r)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s", url, response.StatusCode, body)
	}
	return body
}
