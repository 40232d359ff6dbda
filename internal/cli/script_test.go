package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(running{m}, map[string]func(){"bridge": func() {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}})
}

// Each script is a session at a shell: what is typed, what is printed, what the exit code is.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			cluster := newCluster(t)
			env.Setenv("CLUSTER", cluster)
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			for _, name := range []string{"ADMIN", "OTHER", "THIRD"} { // where nobody listens yet
				address := testkit.Address(t)
				_, port, _ := strings.Cut(address, ":")
				env.Setenv(name, address)
				env.Setenv(name+"_PORT", port)
			}
			if filepath.Base(env.WorkDir) == "script-validate-live" {
				startBrokers(t, env)
			}
			return os.WriteFile(filepath.Join(env.WorkDir, "kubeconfig"), []byte(kubeconfig(cluster)), 0o600)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"waitready": waitFor("/readyz"), "waithealthy": waitFor("/healthz"), "waitlistens": waitListens, "waitstatus": waitStatus, "exitcode": exitCode, "streams": scriptStreams, "protect": scriptProtect},
	})
}

// scriptTries are those of a script for what takes a while, each 50 ms after the one before: two
// minutes, since other tests may have the machine.
const scriptTries = 2400

// exitCode runs a command and compares its exit code: exitcode 2 bridge run …
func exitCode(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// waitFor waits until a path of the bridge with this admin address answers 200.
func waitFor(path string) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		for range scriptTries {
			response, err := http.Get("http://" + args[0] + path)
			if err == nil {
				response.Body.Close()
				if response.StatusCode == http.StatusOK {
					return
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		ts.Fatalf("%s%s does not become 200", args[0], path)
	}
}

// waitListens waits until somebody listens at an address.
func waitListens(ts *testscript.TestScript, _ bool, args []string) {
	for range scriptTries {
		if conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", args[0]); err == nil {
			conn.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("nobody listens at %s", args[0])
}

// waitStatus waits until /status of the bridge with this admin address has a text.
func waitStatus(ts *testscript.TestScript, _ bool, args []string) {
	last := ""
	for range scriptTries {
		if response, err := http.Get("http://" + args[0] + "/status"); err == nil {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if last = string(body); strings.Contains(last, args[1]) {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	ts.Fatalf("/status of %s does not have %q, but\n%s", args[0], args[1], last)
}

func kubeconfig(server string) string {
	return `apiVersion: v1
kind: Config
current-context: dev
clusters: [{name: dev-cluster, cluster: {server: "` + server + `"}}]
users: [{name: me, user: {token: t}}]
contexts: [{name: dev, context: {cluster: dev-cluster, user: me}}]
`
}

// newCluster serves two pods and a Secret, and the discovery of them, over HTTP.
func newCluster(t testing.TB) string {
	t.Helper()
	pods := testkit.NewServer(t, resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true})
	secrets := testkit.NewServer(t, resource.Type{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true})
	pods.Create("shop/web-0", nil)
	pods.Create("shop/web-1", nil)
	secrets.Create("shop/db", func(obj map[string]any) { obj["data"] = map[string]any{"password": "aHVudGVyMg=="} })

	mux := http.NewServeMux()
	serveDiscovery(mux,
		`{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","shortNames":["po"],"verbs":["get","list","watch"]}`,
		`{"name":"secrets","singularName":"secret","namespaced":true,"kind":"Secret","verbs":["get","list","watch"]}`)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
	for prefix, server := range map[string]http.Handler{"pods": pods, "secrets": secrets} {
		mux.Handle("GET /api/v1/"+prefix, server)
		mux.Handle("GET /api/v1/namespaces/{namespace}/"+prefix, server)
	}
	mux.HandleFunc("GET /api/v1/namespaces/closed/pods", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"pods is forbidden: User \"u\" cannot list resource \"pods\""}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
