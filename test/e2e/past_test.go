package e2e_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
)

// past is a control plane in which nothing changes any more, and its history as it is served: what
// a client gets of one it must get of the other. Secrets are recorded as they are.
type past struct {
	*lab
	*definition
	api, served, live *rest.Config
	version           string // of lists of what is served
}

// recordAll has every kind, with their values.
const recordAll = `
informers: [{name: all, resources: ["*"], secrets: send}]` + kept

func newPast(t *testing.T) *past {
	t.Helper()
	l := newLab(t, ownCluster(t, "past", noControllers, "--etcd-compaction-interval=0"))
	p := &past{lab: l, definition: l.definition(), api: l.Admin()}
	p.definition.define("v1:stored")
	p.definition.describe("v1")
	p.definition.create("v1", "one")
	p.definition.create("v1", "two")
	kinds := l.listedKinds()
	l.createOneOfEach(kinds)
	p.createAll(filepath.Join("testdata", "past.yaml"))
	b := l.bridge("bridge", recordAll, with(map[string]string{"BRIDGE_ALLOW_SECRETS": "true"}))
	l.start(b)
	l.updateConfigMap("settings", "2")
	l.createConfigMap("last", "1")
	last, err := l.client.CoreV1().ConfigMaps(l.namespace).Get(l.ctx, "last", metav1.GetOptions{})
	must(t, err)
	p.version = last.ResourceVersion
	l.recorded(b, "cm/last")
	p.served = l.served(b, "--at", p.version, "--speed", "max")
	p.live = l.servedAs("live.yaml", b, "--live")
	return p
}

// createAll creates the objects of a file, and writes their status. Those without a namespace that
// have one in the cluster are of the test's.
func (p *past) createAll(path string) {
	p.t.Helper()
	text, err := os.ReadFile(path)
	must(p.t, err)
	kinds := p.listedKinds()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(strings.ReplaceAll(string(text), "${NS}", p.lab.namespace)), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return
		}
		must(p.t, err)
		for kind, r := range kinds {
			if o.GroupVersionKind() != kind.GroupVersion().WithKind(r.Kind) {
				continue
			}
			p.createWithStatus(kind, r, &o)
		}
	}
}

func (p *past) createWithStatus(kind schema.GroupVersionResource, r metav1.APIResource, o *unstructured.Unstructured) {
	p.t.Helper()
	if r.Namespaced && o.GetNamespace() == "" {
		o.SetNamespace(p.lab.namespace)
	}
	api := p.dynamic.Resource(kind).Namespace(o.GetNamespace())
	made, err := api.Create(p.lab.ctx, o, metav1.CreateOptions{})
	must(p.t, err)
	if status, has := o.Object["status"]; has {
		made.Object["status"] = status
		_, err = api.UpdateStatus(p.lab.ctx, made, metav1.UpdateOptions{})
		must(p.t, err)
	}
}

// Clients get of the past what they get of the cluster.
func TestPast(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	for name, program := range kubectls(t) {
		t.Run(name, func(t *testing.T) { p.kubectlReads(t, program) })
	}
	for name, command := range readers() {
		t.Run(name, func(t *testing.T) {
			got, want := p.read(t, command, filepath.Join(p.dir, "past.yaml")), p.read(t, command, p.Kubeconfig)
			if got != want || !strings.Contains(got, "web-5d-a") {
				t.Errorf("%s\nwant\n%s", got, want)
			}
		})
	}
	t.Run("client-go and controller-runtime", func(t *testing.T) {
		want := p.goClients(t, p.api)
		for name, cfg := range map[string]*rest.Config{"the past": p.served, "what is served live": p.live} {
			if got := p.goClients(t, cfg); !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("of %s:\n%v\nwant\n%v", name, got, want)
			}
		}
	})
	if *recordRequests {
		p.record(t)
	}
	t.Run("requests", func(t *testing.T) { p.answersAlike(t) })
}

// readers are the clients that make test-clients installs, with their arguments but for a
// kubeconfig.
func readers() map[string][]string {
	dir := os.Getenv("KUBERNETES_READERS")
	if dir == "" {
		return nil
	}
	return map[string][]string{
		"python": {filepath.Join(dir, "venv", "bin", "python"), filepath.Join(dir, "read.py")},
		"java":   {"java", "-cp", filepath.Join(dir, "*"), filepath.Join(dir, "Read.java")},
	}
}

// read runs one of them, and returns what it prints.
func (p *past) read(t *testing.T, command []string, kubeconfig string) string {
	t.Helper()
	args := append(slices.Clone(command[1:]), kubeconfig, p.lab.namespace, p.group)
	cmd := exec.CommandContext(t.Context(), command[0], args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, errs.String())
	}
	return string(out)
}
