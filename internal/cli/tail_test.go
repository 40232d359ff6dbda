package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

// TestTail prints what a bridge that runs sends.
func TestTail(t *testing.T) {
	dir, admin := t.TempDir(), testkit.Address(t)
	file := filepath.Join(dir, "bridge.yaml")
	text := "informers: [{name: all, resources: [pods, secrets], resync: 300ms}]\nsinks: [{name: out, stdout: {}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr, log testkit.Buffer
	ended := make(chan int, 2)
	go func() {
		ended <- run(ctx, []string{
			"run", "--config", file, "--kubeconfig", kubeconfigFile(t), "--state-dir", filepath.Join(dir, "state"),
			"--admin-address", admin,
		}, nil, io.Discard, &log)
	}()
	testkit.Eventually(t, "the bridge answers", func() bool {
		code := run(ctx, []string{"status", "--ready", "--admin-address", admin}, nil, io.Discard, io.Discard)
		return code == ExitClean
	})
	looking, stop := context.WithCancel(ctx)
	go func() {
		ended <- run(looking, []string{
			"tail", "--admin-address", admin, "--filter", `meta.resource == "pods" && op == "synced" && meta.name != "web-1"`,
		}, nil, &stdout, &stderr)
	}()
	testkit.Eventually(t, "an event is printed", func() bool {
		return strings.Contains(stdout.String(), "  synced   pods                     shop/web-0 ")
	})
	stop()
	if code := <-ended; code != ExitClean {
		t.Errorf("exit code %d after Ctrl-C: %s", code, stderr.String())
	}
	if got := stdout.String(); strings.Contains(got, "secrets") || strings.Contains(got, "web-1") {
		t.Errorf("the filter lets through\n%s", got)
	}
	cancel()
	if code := <-ended; code != ExitClean {
		t.Errorf("exit code %d\n%s", code, log.String())
	}
}

func TestTailOfOthers(t *testing.T) {
	for _, c := range []struct {
		what, answer   string
		status, code   int
		stdout, stderr string
	}{
		{
			"a bridge that stops", ": looking\n\ndata: {\"events\":[{\"op\":\"added\",\"resource\":\"pods\",\"namespace\":\"shop\",\"name\":\"a\\u001b[2J\"," +
				"\"sink\":\"lake\",\"outcome\":\"lost\",\"attempts\":2}],\"dropped\":3}\n\n", 200, ExitFailed,
			`shop/a\x1b[2J`, "3 events left out",
		},
		{"a filter that is refused", `{"error":"filter: 1:1: undeclared reference to 'x'"}`, 400, ExitRefused, "", "undeclared reference to 'x'"},
		{"another server", "<html>", 404, ExitRefused, "", "is not the admin endpoint of a bridge"},
		{"another version", "data: 7\n\n", 200, ExitFailed, "", "of a bridge of this version"},
	} {
		t.Run(c.what, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.answer)
			}))
			defer server.Close()
			var stdout, stderr testkit.Buffer
			code := run(t.Context(), []string{"tail", "--admin-address", server.Listener.Addr().String()}, nil, &stdout, &stderr)
			if code != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
			}
		})
	}
}
