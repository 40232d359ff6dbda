package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// workDir holds what the tests write; it is removed at the end.
var workDir string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == natsName {
		os.Exit(runNATS(os.Args[1:]))
	}
	if filepath.Base(os.Args[0]) == plainName {
		os.Exit(runPlain(os.Args[1], os.Args[2]))
	}
	if filepath.Base(os.Args[0]) == functionName {
		os.Exit(runFunction(os.Args[1], os.Args[2], os.Args[3]))
	}
	var err error
	if workDir, err = os.MkdirTemp("", "bridge-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stopClusters()
	if err := os.RemoveAll(workDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// bridgeBinary is $BRIDGE_BIN, else it is built, with the race detector when the tests have it.
var bridgeBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("BRIDGE_BIN"); path != "" {
		return filepath.Abs(path)
	}
	root, err := harness.Root()
	if err != nil {
		return "", err
	}
	out := filepath.Join(workDir, "bridge")
	return out, harness.BuildBridge(context.Background(), root, out, raceEnabled)
})

// controlPlaneBinary is $CONTROLPLANE_BIN, else it is built, which takes minutes the first time.
var controlPlaneBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CONTROLPLANE_BIN"); path != "" {
		return filepath.Abs(path)
	}
	root, err := harness.Root()
	if err != nil {
		return "", err
	}
	out := filepath.Join(root, "bin", "controlplane")
	return out, harness.BuildControlPlane(context.Background(), root, out, nil)
})

// cluster is a control plane and clients of its admin.
type cluster struct {
	*harness.ControlPlane
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// controllers reports whether there are some, and nodes.
	controllers bool
	dir         string
}

const noControllers = "--controllers=false"

// The clusters that tests share, each started when the first test asks for it. They end with the
// program.
var (
	// live has controllers and nodes: Deployments become running Pods. Tests share it, each in
	// namespaces of its own.
	live = startOnce("live")
	// still has an API server only: nothing changes but by tests. They restart, compact and restore
	// it, one after the other.
	still = startOnce("still", noControllers, "--etcd-compaction-interval=0")
)

var (
	startedMu sync.Mutex
	started   []*cluster // guarded by startedMu
)

func startOnce(name string, flags ...string) func(*testing.T) *cluster {
	start := sync.OnceValues(func() (*cluster, error) {
		c, err := startCluster(name, flags)
		if err == nil {
			startedMu.Lock()
			started = append(started, c)
			startedMu.Unlock()
		}
		return c, err
	})
	return func(t *testing.T) *cluster {
		t.Helper()
		c, err := start()
		must(t, err)
		return c
	}
}

// ownCluster is a cluster of one test, which ends with it.
func ownCluster(t *testing.T, name string, flags ...string) *cluster {
	t.Helper()
	c, err := startCluster(name, flags)
	must(t, err)
	t.Cleanup(func() { stopCluster(c) })
	return c
}

func startCluster(name string, flags []string) (*cluster, error) {
	binary, err := controlPlaneBinary()
	if err != nil {
		return nil, err
	}
	return startClusterOf(binary, name, flags)
}

func startClusterOf(binary, name string, flags []string) (*cluster, error) {
	dir := filepath.Join(workDir, "cluster-"+name)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	cp, err := harness.StartControlPlane(ctx, harness.ControlPlaneConfig{
		Binary: binary, Dir: dir, Flags: flags,
	})
	if err != nil {
		return nil, err
	}
	c := &cluster{
		ControlPlane: cp, controllers: !slices.Contains(flags, noControllers), dir: dir,
	}
	if c.client, err = kubernetes.NewForConfig(cp.Admin()); err != nil {
		return nil, err
	}
	c.dynamic, err = dynamic.NewForConfig(cp.Admin())
	return c, err
}

func stopClusters() {
	var stops sync.WaitGroup
	startedMu.Lock()
	defer startedMu.Unlock()
	for _, c := range started {
		stops.Go(func() { stopCluster(c) })
	}
	stops.Wait()
}

func stopCluster(c *cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
