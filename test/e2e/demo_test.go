package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// demoProgram builds the demo, and first what the demo would build with the tests waiting.
var demoProgram = sync.OnceValues(func() (string, error) {
	if _, err := controlPlaneBinary(); err != nil {
		return "", err
	}
	program := filepath.Join(workDir, "demo")
	out, err := exec.Command("go", "build", "-o", program, "./cmd/demo").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return program, nil
})

// showDemo runs the demo until it has shown everything that is wanted, ends it with Ctrl-C, and
// gives what it has printed.
func showDemo(t *testing.T, env, args []string, wants ...string) string {
	t.Helper()
	program, err := demoProgram()
	must(t, err)
	cmd := exec.Command(program, append(args, "--no-color")...)
	cmd.Env = append(os.Environ(), env...)
	var log harness.Log
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	eventually(t, "the demo", startTime, func() (missing []string) {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, log.String())
		default:
		}
		for _, want := range wants {
			if !strings.Contains(log.String(), want) {
				missing = append(missing, want)
			}
		}
		return missing
	})
	must(t, cmd.Process.Signal(os.Interrupt))
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
	case <-time.After(startTime):
		t.Fatalf("it does not end:\n%s", log.String())
	}
	text := log.String()
	if !regexp.MustCompile(`(?m)^\d+ events in \d+`).MatchString(text) {
		t.Errorf("it does not say how many events there were:\n%s", text)
	}
	return text
}

// The demo shows events, and leaves nothing behind.
func TestDemo(t *testing.T) {
	t.Parallel()
	text := showDemo(t, nil, nil,
		"$ kubectl --namespace shop create deployment web",
		"apis/apps/v1/namespaces/shop/deployments/web", "api/v1/namespaces/shop/pods/web-",
		"demo-user", "kwok-controller", "all of this event", "dev.kubebridge.resource.",
		"/#/timeline?ns=shop", "bin/bridge history deploy/web -n shop --state-dir ")
	stopped := regexp.MustCompile(`Everything is stopped, and (\S+) is removed`).FindStringSubmatch(text)
	if stopped == nil {
		t.Fatalf("it does not say that everything is stopped:\n%s", text)
	}
	if _, err := os.Stat(stopped[1]); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", stopped[1], err)
	}
	if left := processesOf(stopped[1]); len(left) > 0 {
		t.Errorf("these are still running: %q", left)
	}
}

// TestDemoInYourCluster: with --cluster the demo starts no control plane, and removes what it made.
func TestDemoInYourCluster(t *testing.T) {
	t.Parallel()
	c := live(t)
	showDemo(t, []string{"KUBECONFIG=" + c.Kubeconfig}, []string{"--cluster"},
		"The cluster is https://", "namespaces/bridge-demo/deployments/web")
	namespaces := c.client.CoreV1().Namespaces()
	ns, err := namespaces.Get(t.Context(), "bridge-demo", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) && (err != nil || ns.DeletionTimestamp == nil) {
		t.Errorf("its namespace is left: %v", err)
	}
}

// processesOf are the command lines of the processes that were started with a path in a directory;
// none where there is no /proc.
func processesOf(dir string) (found []string) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil
	}
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), dir) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
