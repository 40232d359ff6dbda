package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/testkit"
)

// awayRun is a bridge that was started while its API server is unavailable.
type awayRun struct {
	t         *testing.T
	apiServer string // where it is expected
	admin     string
	stderr    testkit.Buffer
	cancel    context.CancelCauseFunc
	code      chan int
}

func startAway(t *testing.T) *awayRun {
	t.Helper()
	r := &awayRun{t: t, apiServer: testkit.Address(t), admin: testkit.Address(t), code: make(chan int, 1)}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kubeconfig":  kubeconfig("http://" + r.apiServer),
		"bridge.yaml": "informers: [{name: a, resources: [pods]}]\nsinks: [{name: out, stdout: {}}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	r.cancel = cancel
	args := []string{"run", "--config", filepath.Join(dir, "bridge.yaml"), "--kubeconfig", filepath.Join(dir, "kubeconfig"), "--state-dir", filepath.Join(dir, "state"), "--admin-address", r.admin}
	go func() { r.code <- run(ctx, args, nil, io.Discard, &r.stderr) }()
	return r
}

// waitFor waits until the admin server answers a path with a status and a text.
func (r *awayRun) waitFor(path string, status int, words string) {
	r.t.Helper()
	last := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		response, err := http.Get("http://" + r.admin + path)
		if err != nil {
			last = err.Error()
			continue
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if last = response.Status + " " + string(body); response.StatusCode == status && strings.Contains(last, words) {
			return
		}
	}
	r.t.Fatalf("%s does not answer %d with %q, but %s\n%s", path, status, words, last, r.stderr.String())
}

func (r *awayRun) stop() {
	r.t.Helper()
	r.cancel(errors.New("interrupt signal received"))
	select {
	case code := <-r.code:
		if code != ExitClean || !strings.Contains(r.stderr.String(), "bridge stopped") {
			r.t.Errorf("exit code %d\n%s", code, r.stderr.String())
		}
	case <-time.After(10 * time.Second):
		r.t.Fatalf("it does not stop\n%s", r.stderr.String())
	}
}

// An API server that is unavailable at the start is waited for.
func TestStartWithoutAPIServer(t *testing.T) {
	r := startAway(t)
	r.waitFor("/readyz", http.StatusServiceUnavailable, "nothing answers at http://"+r.apiServer)
	r.waitFor("/status", http.StatusOK, "nothing answers at")
	r.waitFor("/healthz", http.StatusOK, "")
	behind, err := url.Parse(newCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(behind))
	front.Listener.Close()
	if front.Listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", r.apiServer); err != nil {
		t.Fatal(err)
	}
	front.Start()
	defer front.Close()
	defer front.CloseClientConnections()
	r.waitFor("/readyz", http.StatusOK, "")
	r.stop()
	for _, want := range []string{"can't start yet, trying again", "the API server answers"} {
		if !strings.Contains(r.stderr.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, r.stderr.String())
		}
	}
}

// A bridge that waits for its API server can be stopped.
func TestStopWithoutAPIServer(t *testing.T) {
	r := startAway(t)
	r.waitFor("/readyz", http.StatusServiceUnavailable, "nothing answers at")
	r.stop()
}
