package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// patience is for a machine that others use too.
const patience = 2 * time.Minute

// cluster is a real control plane with controllers, and clients of its admin.
type cluster struct {
	*harness.ControlPlane
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper

	mu       sync.Mutex
	warnings []string // guarded by mu: what the API server said
}

// theCluster is started by the first test that asks for it.
var theCluster = sync.OnceValues(startCluster)

var started *cluster // by theCluster

// stopCluster ends it when there is one.
func stopCluster() {
	if started == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := started.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func startCluster() (*cluster, error) {
	binary := os.Getenv("CONTROLPLANE_BIN")
	if binary == "" {
		root, err := harness.Root()
		if err != nil {
			return nil, err
		}
		binary = filepath.Join(root, "bin", "controlplane")
		if err := harness.BuildControlPlane(context.Background(), root, binary, nil); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cp, err := harness.StartControlPlane(ctx, harness.ControlPlaneConfig{Binary: binary, Dir: filepath.Join(workDir, "cluster")})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: cp}
	started = c
	rc := cp.Admin()
	rc.WarningHandler = c
	if c.client, err = kubernetes.NewForConfig(rc); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfig(rc); err != nil {
		return nil, err
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	return c, c.furnish(ctx)
}

// HandleWarningHeader keeps what the API server warns of.
func (c *cluster) HandleWarningHeader(_ int, _ string, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warnings = append(c.warnings, text)
}

func (c *cluster) takeWarnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.warnings
	c.warnings = nil
	return taken
}

// furnish makes what an administrator has made before anybody installs the bridge.
func (c *cluster) furnish(ctx context.Context) error {
	const level = "restricted"
	for name, labels := range map[string]map[string]string{
		namespace: {"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/warn": level},
		"shop":    nil, "bank": nil, "vault": nil, "monitoring": nil,
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	files, err := filepath.Glob("testdata/crds/*.yaml")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		list, err := decode(string(text))
		if err != nil {
			return err
		}
		if err := c.apply(ctx, list, false); err != nil {
			return err
		}
	}
	return wait(ctx, "the definitions are served", func() error {
		c.mapper.Reset()
		for _, kind := range []string{"PrometheusRule", "ServiceMonitor"} {
			if _, err := c.mapper.RESTMapping(schema.GroupKind{Group: "monitoring.coreos.com", Kind: kind}, "v1"); err != nil {
				return err
			}
		}
		return nil
	})
}

// apply applies objects on the server, as `kubectl apply --server-side` does.
func (c *cluster) apply(ctx context.Context, list []*unstructured.Unstructured, dryRun bool) error {
	options := metav1.ApplyOptions{FieldManager: "deploy", Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var wrong []error
	for _, o := range list {
		client, err := c.resource(o)
		if err == nil {
			_, err = client.Apply(ctx, o.GetName(), o, options)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s %s/%s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err))
		}
	}
	return errors.Join(wrong...)
}

func (c *cluster) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.dynamic.Resource(mapping.Resource), nil
	}
	if o.GetNamespace() == "" {
		return nil, errors.New("it has no namespace")
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

func live(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	c, err := theCluster()
	must(t, err)
	c.takeWarnings()
	return c
}

// Whatever the chart makes of the main combinations of values, the API server takes it, without a
// warning.
func TestChartOnAPIServer(t *testing.T) {
	c := live(t)
	for name, v := range cases(t) {
		t.Run(name, func(t *testing.T) {
			list := append(objects(t, mustRender(t, v)), objects(t, renderHooks(t, v))...)
			must(t, c.apply(t.Context(), list, true))
			if warnings := c.takeWarnings(); len(warnings) > 0 {
				t.Errorf("the API server warns: %s", strings.Join(warnings, "; "))
			}
		})
	}
	t.Run("but not what is wrong", func(t *testing.T) { // so that the above means something
		list := objects(t, mustRender(t, cases(t)["full"]))
		monitor := find(t, list, "ServiceMonitor", "")
		must(t, unstructured.SetNestedField(monitor.Object, "often", "spec", "endpoints"))
		if err := c.apply(t.Context(), []*unstructured.Unstructured{monitor}, true); !apierrors.IsInvalid(err) && (err == nil || !strings.Contains(err.Error(), "endpoints")) {
			t.Errorf("a wrong ServiceMonitor: %v", err)
		}
		service := find(t, list, "Service", "")
		must(t, unstructured.SetNestedField(service.Object, true, "spec", "headless"))
		if err := c.apply(t.Context(), []*unstructured.Unstructured{service}, true); err == nil || !strings.Contains(err.Error(), "headless") {
			t.Errorf("a field that there is not: %v", err)
		}
		set := find(t, list, "StatefulSet", "")
		must(t, unstructured.SetNestedField(set.Object, false, "spec", "template", "spec", "securityContext", "runAsNonRoot"))
		must(t, c.apply(t.Context(), []*unstructured.Unstructured{set}, true))
		if warnings := strings.Join(c.takeWarnings(), "; "); !strings.Contains(warnings, "PodSecurity") {
			t.Errorf("a pod that runs as root: the API server warns only: %s", warnings)
		}
	})
}

// wait tries until something succeeds.
func wait(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; last: %w", what, context.Cause(ctx), err)
		}
	}
}

// await is wait in a test, with our patience.
func await(t *testing.T, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, wait(ctx, what, try))
}
