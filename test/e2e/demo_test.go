package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The demo shows events, and leaves nothing behind.
func TestDemo(t *testing.T) {
	t.Parallel()
	if _, err := controlPlaneBinary(); err != nil { // the demo would build it too, at the same time
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "demo")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/demo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = exec.CommandContext(ctx, program, "--duration", "11s", "--no-color").CombinedOutput()
	text := string(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{
		"$ kubectl --namespace shop create deployment web", "apis/apps/v1/namespaces/shop/deployments/web", "api/v1/namespaces/shop/pods/web-",
		"demo-user", "kwok-controller", "all of this event", "dev.kubebridge.resource.", "events in 11s",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in what it shows:\n%s", want, text)
		}
	}
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "demo")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/demo").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := live(t)
	cmd := exec.CommandContext(ctx, program, "--cluster", "--duration", "11s", "--no-color")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	out, err = cmd.CombinedOutput()
	text := string(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, want := range []string{"The cluster is https://", "namespaces/bridge-demo/deployments/web", "events in 11s"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in what it shows:\n%s", want, text)
		}
	}
	ns, err := c.client.CoreV1().Namespaces().Get(ctx, "bridge-demo", metav1.GetOptions{})
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
