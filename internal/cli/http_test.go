package cli

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

// posted is an endpoint that remembers what was posted.
type posted struct {
	mu     sync.Mutex
	events []string // guarded by mu: the type and subject of each
	bodies []string // guarded by mu
}

func (p *posted) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodPost {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, r.URL.Path+" "+r.Header.Get("Ce-Type")+" "+r.Header.Get("Ce-Subject"))
	p.bodies = append(p.bodies, string(body))
}

func (p *posted) has(events ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(events, func(e string) bool { return !slices.Contains(p.events, e) })
}

// A bridge in the place of Knative's ApiServerSource: it posts to the endpoint of K_SINK, which
// comes up later than the bridge.
func TestHTTPSink(t *testing.T) {
	endpoint, admin := testkit.Address(t), testkit.Address(t)
	t.Setenv("K_SINK", "http://"+endpoint+"/default")
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	testkit.OK(t, os.WriteFile(file, []byte(`
informers:
  - name: all
    resources: [pods, secrets]
    sinks: [{name: broker, types: knative}]
sinks: [{name: broker, http: {}}]
`), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	var stderr testkit.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{
			"run", "--config", file, "--kubeconfig", kubeconfigFile(t), "--state-dir", t.TempDir(),
			"--admin-address", admin,
		}, nil, io.Discard, &stderr)
	}()
	ready := func() (text string) {
		response, err := http.Get("http://" + admin + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.Status + " " + string(body)
	}
	testkit.Eventually(t, "it is not ready without its endpoint", func() bool {
		return strings.Contains(ready(), "http://"+endpoint+"/default: dial tcp")
	})

	var got posted
	server := &http.Server{Handler: &got}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", endpoint)
	testkit.OK(t, err)
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	testkit.Eventually(t, "the first events", func() bool {
		return got.has(
			"/default dev.knative.apiserver.resource.add /apis/v1/namespaces/shop/pods/web-0",
			"/default dev.knative.apiserver.resource.add /apis/v1/namespaces/shop/pods/web-1",
			"/default dev.knative.apiserver.resource.add /apis/v1/namespaces/shop/secrets/db",
		)
	})
	testkit.Eventually(t, "it is ready", func() bool { return strings.HasPrefix(ready(), "200") })
	got.mu.Lock()
	if text := strings.Join(got.bodies, "\n"); strings.Contains(text, "aHVudGVyMg") || !strings.Contains(text, "redacted:") {
		t.Errorf("the value of a Secret is not redacted:\n%s", text)
	}
	got.mu.Unlock()
	cancel()
	if c := <-code; c != ExitClean {
		t.Errorf("exit code %d\n%s", c, stderr.String())
	}
}
