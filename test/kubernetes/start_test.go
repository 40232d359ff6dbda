package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// program is the built control plane.
var program string

// TestMain builds the program once, or takes the one that CONTROLPLANE names.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		if program = os.Getenv("CONTROLPLANE"); program != "" {
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "controlplane")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "controlplane")
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, ".") // linking takes half the time then
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "build the control plane:", err)
			return 1
		}
		return m.Run()
	}())
}

// controlPlane is a running program, as a test that only knows the binary sees it.
type controlPlane struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	dir   string

	Kubeconfig string
	Control    string
	Server     string
	AuditLog   string
	PID        int

	config *rest.Config
	client *kubernetes.Clientset
}

// userAgent is ours in the audit log.
const userAgent = "controlplane-test"

// start runs the program until the end of the test.
func start(t *testing.T, flags ...string) *controlPlane {
	t.Helper()
	c := &controlPlane{t: t, dir: t.TempDir()}
	flags = append([]string{"--dir", c.dir, "--exit-with-stdin", "--ready-file", filepath.Join(c.dir, "ready.json")}, flags...)
	c.cmd = exec.Command(program, flags...)
	c.cmd.Stderr = t.Output()
	stdout, err := c.cmd.StdoutPipe()
	must(t, err)
	c.stdin, err = c.cmd.StdinPipe()
	must(t, err)
	must(t, c.cmd.Start())
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		_ = c.cmd.Wait()
		if t.Failed() {
			c.keepLogs()
		}
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the control plane ended before it was ready: %v", c.cmd.Wait())
	}
	must(t, json.Unmarshal(line, c))
	c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	must(t, err)
	c.config.UserAgent = userAgent
	c.config.QPS = -1
	c.client, err = kubernetes.NewForConfig(c.config)
	must(t, err)
	return c
}

// keepLogs saves the components' logs from the temporary directory.
func (c *controlPlane) keepLogs() {
	if err := os.CopyFS(filepath.Join(c.t.ArtifactDir(), "logs"), os.DirFS(filepath.Join(c.dir, "logs"))); err != nil {
		c.t.Log(err)
	}
}

// post runs an operation of the control API and returns etcd's revision after it.
func (c *controlPlane) post(operation string) int64 {
	c.t.Helper()
	var result struct{ Revision int64 }
	c.call(http.MethodPost, operation, &result)
	return result.Revision
}

// requests asks how many requests the audit log has.
func (c *controlPlane) requests(filter url.Values) (count int, uris []string) {
	c.t.Helper()
	var result struct {
		Count    int
		Requests []struct{ URI string }
	}
	c.call(http.MethodGet, "/requests?"+filter.Encode(), &result)
	for _, r := range result.Requests {
		uris = append(uris, r.URI)
	}
	return result.Count, uris
}

// children returns the process ids of the components.
func (c *controlPlane) children() map[string]int {
	c.t.Helper()
	var status struct {
		Components []struct {
			Name string
			PID  int
		}
	}
	c.call(http.MethodGet, "/status", &status)
	pids := map[string]int{}
	for _, component := range status.Components {
		pids[component.Name] = component.PID
	}
	return pids
}

func (c *controlPlane) call(method, path string, result any) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.Control+path, nil)
	must(c.t, err)
	resp, err := http.DefaultClient.Do(req)
	must(c.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(c.t, err)
	if resp.StatusCode != http.StatusOK {
		c.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, body)
	}
	must(c.t, json.Unmarshal(body, result))
}

// alive reports whether a process is still running. A zombie is not: it only waits for init to take
// note.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	return !strings.Contains(string(stat), ") Z ")
}

// waitGone fails the test if one of the processes is still there after a while.
func waitGone(t *testing.T, pids map[string]int) {
	t.Helper()
	for name, pid := range pids {
		eventually(t, 5*time.Second, name+" is gone", func(context.Context) error {
			if alive(pid) {
				return fmt.Errorf("process %d is running", pid)
			}
			return nil
		})
	}
}

// eventually repeats check until it returns nil.
func eventually(t *testing.T, timeout time.Duration, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v in vain until %s: %v", timeout, what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
