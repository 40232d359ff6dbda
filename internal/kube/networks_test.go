package kube_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/testkit"
)

// secureServer is an API server with TLS on an address, which counts the tokens that it gets, and
// takes those that allow returns true for.
func secureServer(t *testing.T, address string, allow func(token string) bool) *httptest.Server {
	t.Helper()
	api := apiServer(t, "aggregated")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allow(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":401,"reason":"Unauthorized","message":"no"}`, http.StatusUnauthorized)
			return
		}
		api.ServeHTTP(w, r)
	}))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	testkit.OK(t, err)
	testkit.OK(t, server.Listener.Close())
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// discoverAt asks an API server what it serves, by a kubeconfig with more keys of the cluster and a
// user.
func discoverAt(t *testing.T, server, cluster, user string) error {
	t.Helper()
	config, _, err := kube.RESTConfig(kubeconfigFile(t, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true%s}}]
users: [{name: u, user: {%s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, server, cluster, user)), "", 0, 0)
	testkit.OK(t, err)
	return discover(t, config)
}

func discover(t *testing.T, config *rest.Config) error {
	t.Helper()
	resolver, err := kube.NewResolver(config)
	testkit.OK(t, err)
	catalog, err := resolver.Discover(t.Context())
	if err == nil {
		types, resolveErr := catalog.Resolve(kube.Selection{Names: []string{"pods"}})
		if resolveErr != nil || len(types) != 1 {
			t.Errorf("%v, %v", types, resolveErr)
		}
	}
	return err
}

func anyToken(string) bool { return true }

// An API server that has an IPv6 address only.
func TestIPv6Only(t *testing.T) {
	probe, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skip("a machine without IPv6: ", err)
	}
	testkit.OK(t, probe.Close())
	server := secureServer(t, "[::1]:0", anyToken)
	if !strings.HasPrefix(server.URL, "https://[::1]:") {
		t.Fatal(server.URL)
	}
	testkit.OK(t, discoverAt(t, server.URL, "", "token: t"))
}

// What a kubeconfig names as proxy is used for every request.
func TestProxyOfKubeconfig(t *testing.T) {
	server := secureServer(t, "127.0.0.1:0", anyToken)
	for scheme, serve := range map[string]func(net.Conn) (target string, err error){"http": httpConnect, "socks5": socksConnect} {
		t.Run(scheme, func(t *testing.T) {
			p := newConnectProxy(t, serve, server.Listener.Addr().String())
			// The name is known to the proxy only.
			testkit.OK(t, discoverAt(t, "https://api.invalid:6443", fmt.Sprintf(", proxy-url: %q", scheme+"://"+p.address), "token: t"))
			if p.count.Load() == 0 || p.target.Load() != "api.invalid:6443" {
				t.Errorf("%d connections through the proxy, to %v", p.count.Load(), p.target.Load())
			}
		})
	}
}

// HTTPS_PROXY and NO_PROXY are read once by a process, so this has one of its own for each.
func TestProxyOfEnvironment(t *testing.T) {
	if server := os.Getenv("TEST_API_SERVER"); server != "" {
		if err := discoverAt(t, server, "", "token: t"); err != nil {
			t.Fatal(err)
		}
		return
	}
	server := secureServer(t, "127.0.0.1:0", anyToken)
	for name, noProxy := range map[string]string{"with a proxy": "other.invalid", "but not for this server": ".invalid"} {
		t.Run(name, func(t *testing.T) {
			p := newConnectProxy(t, httpConnect, server.Listener.Addr().String())
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestProxyOfEnvironment$")
			child.Env = append(os.Environ(), "TEST_API_SERVER=https://api.invalid:6443", "HTTPS_PROXY=http://"+p.address, "NO_PROXY="+noProxy)
			out, err := child.CombinedOutput()
			proxied := p.count.Load() > 0
			if wanted := noProxy == "other.invalid"; proxied != wanted || (err == nil) != wanted {
				t.Errorf("%d connections through the proxy, %v\n%s", p.count.Load(), err, out)
			}
		})
	}
}

// connectProxy carries connections to one address, whatever its client asks for.
type connectProxy struct {
	address string
	count   atomic.Int64
	target  atomic.Value // that was asked for last
}

func newConnectProxy(t *testing.T, begin func(net.Conn) (string, error), address string) *connectProxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.OK(t, err)
	p := &connectProxy{address: listener.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.carry(t, conn, begin, address) })
		}
	})
	t.Cleanup(func() { _ = listener.Close() })
	return p
}

func (p *connectProxy) carry(t *testing.T, conn net.Conn, begin func(net.Conn) (string, error), address string) {
	defer conn.Close()
	target, err := begin(conn)
	if err != nil {
		t.Error(err)
		return
	}
	p.target.Store(target)
	p.count.Add(1)
	server, err := net.Dial("tcp", address)
	if err != nil {
		return // the test has ended
	}
	defer server.Close()
	go func() { _, _ = io.Copy(server, conn) }()
	_, _ = io.Copy(conn, server)
}

// httpConnect reads byte by byte: what follows is the client's.
func httpConnect(conn net.Conn) (target string, err error) {
	request, err := http.ReadRequest(bufio.NewReaderSize(conn, 16)) // client and server speak in turns
	if err != nil {
		return "", err
	}
	_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	return request.Host, err
}

// socksConnect is SOCKS5 without a password, by a name (RFC 1928).
func socksConnect(conn net.Conn) (target string, err error) {
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, readErr := io.ReadFull(conn, b); readErr != nil && err == nil {
			err = readErr
		}
		return b
	}
	read(int(read(2)[1]))
	_, _ = conn.Write([]byte{5, 0})
	head := read(5) // version, connect, 0, a name, its length
	name, port := read(int(head[4])), read(2)
	if head[3] != 3 || err != nil {
		return "", fmt.Errorf("request % x: %w", head, err)
	}
	_, err = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return fmt.Sprintf("%s:%d", name, int(port[0])<<8|int(port[1])), err
}

// A program of the kubeconfig makes tokens (as of the clouds): it is asked again when a token has
// ended by its own word, and when the API server takes it no more.
func TestExecPluginToken(t *testing.T) {
	for name, expires := range map[string]string{"has ended": `"expirationTimestamp":"2020-01-01T00:00:00Z",`, "is refused": ""} {
		t.Run("which "+name, func(t *testing.T) {
			var oldest atomic.Int64 // token that the API server takes
			oldest.Store(1)
			server := secureServer(t, "127.0.0.1:0", func(token string) bool {
				var n int64
				_, err := fmt.Sscanf(token, "token-%d", &n)
				return err == nil && n >= oldest.Load()
			})
			dir := t.TempDir()
			program := filepath.Join(dir, "plugin")
			testkit.OK(t, os.WriteFile(program, fmt.Appendf(nil, `#!/bin/sh
echo x >> %[1]s/calls
n=$(wc -l < %[1]s/calls)
echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{%[2]s"token":"token-'$((n))'"}}'
`, dir, expires), 0o700))
			config, _, err := kube.RESTConfig(kubeconfigFile(t, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: %q, interactiveMode: Never}}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, server.URL, program)), "", 0, 0)
			testkit.OK(t, err)
			testkit.OK(t, discover(t, config))
			calls, err := os.ReadFile(filepath.Join(dir, "calls"))
			testkit.OK(t, err)
			oldest.Store(int64(strings.Count(string(calls), "\n")) + 1) // what it has is too old now
			testkit.Eventually(t, "it has a new token", func() bool { return discover(t, config) == nil })
		})
	}
}

// The token of a pod's service account is bound to the pod and short: kubelet replaces the file,
// and requests have the new one within a minute or so, long before the old one ends.
func TestBoundTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	testkit.OK(t, os.WriteFile(file, []byte("old"), 0o600))
	config, _, err := kube.RESTConfig(kubeconfigFile(t, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://api.invalid"}}]
users: [{name: u, user: {tokenFile: %q}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`, file)), "", 0, 0)
	testkit.OK(t, err)
	synctest.Test(t, func(t *testing.T) {
		sent := ""
		config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get("Authorization")
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
		})
		client, err := rest.HTTPClientFor(config)
		testkit.OK(t, err)
		for _, want := range []string{"first", "second"} {
			testkit.OK(t, os.WriteFile(file, []byte(want), 0o600))
			time.Sleep(2 * time.Minute)
			at, err := url.JoinPath(config.Host, "api")
			testkit.OK(t, err)
			answer, err := client.Get(at)
			testkit.OK(t, err)
			answer.Body.Close()
			if sent != "Bearer "+want {
				t.Errorf("sent %q, want %s", sent, want)
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
