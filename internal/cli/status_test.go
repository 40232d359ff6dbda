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
	"sync/atomic"
	"testing"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A watch of the status continues when the bridge is unavailable.
// A watch shows rates, survives an end of the bridge, and ends with its context.
func TestStatusWatch(t *testing.T) {
	var published, away atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case away.Load() > 0:
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprintf(w, `{"version":"v9","started":"2026-01-01T00:00:00Z","ready":false,"reasons":[{"what":"sink lake","message":"is unavailable\n  for long"}],"reload":{"result":"refused","refusedSince":"2026-01-01T00:00:00Z","problems":["bridge.yaml:3: no\nsuch key"]},"cluster":"prod","state":{"bytes":2048},
				"informers":[{"informer":"all","resource":"pods","namespace":"shop","phase":"watching","synced":true,"objects":7,"version":"42","versionsBehind":3,
				"oldestSeconds":{"lake":200.4,"audit":1},"logBytes":1024,"spoolBytes":1048576,"gaps":{"expired":2}}],
				"sinks":[{"name":"lake","state":"unavailable","lagSeconds":200.4,"pendingChanges":817,"published":%d,"queuedBytes":100,"lastError":"no\nroute","lastErrorAt":"2026-01-01T00:00:00Z"},
				{"name":"audit","state":"connected","lastError":"reset","lastErrorAt":"2026-01-01T00:00:00Z","lastErrorOver":"2026-01-01T00:01:00Z"}]}`, published.Add(1000))
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr testkit.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"status", "--watch", "--interval", "100ms", "--admin-address", server.Listener.Addr().String()}, nil, &stdout, &stderr)
	}()
	until := func(what string) {
		t.Helper()
		testkit.Eventually(t, "it shows "+what, func() bool { return strings.Contains(stdout.String(), what) })
	}
	until("prod: not ready (bridge v9, runs for ")
	until("  sink lake: is unavailable for long\n")
	until("configuration: the file is refused since 2026-01-01 ")
	until(" the one of before runs\n  bridge.yaml:3: no such key\n")
	until("reset (")
	until("s ago, over for ")
	until("LAG    VERSIONS BEHIND  WAITING")
	until("pods in shop  watching  7        42       3m20s  3                1.0 KiB  1.0 MiB  2     -\n")
	until("  2000       ")
	if table := stdout.String(); !strings.Contains(table, "lake   unavailable  3m20s  817      -           1000       100 B") {
		t.Errorf("a rate of one answer:\n%s", table)
	}
	away.Store(1)
	until("no bridge answers at " + server.Listener.Addr().String())
	away.Store(0)
	before := len(stdout.String())
	testkit.Eventually(t, "it comes back", func() bool { return strings.Contains(stdout.String()[before:], "lake   unavailable") })
	cancel()
	if got := <-code; got != ExitClean {
		t.Errorf("exit code %d: %s", got, stderr.String())
	}
}

// On a terminal the resources that are in sync are one line, so that sinks have a place.
func TestStatusFolds(t *testing.T) {
	a := answer{folds: true}
	a.Status = &bridge.Status{
		Informers: make([]informer.Status, 40),
		Sinks:     []bridge.SinkStatus{{Name: "lake", State: "unavailable"}},
	}
	for i := range a.Informers {
		a.Informers[i] = informer.Status{Resource: fmt.Sprint("kind", i), Synced: i != 7}
	}
	var table strings.Builder
	testkit.OK(t, a.writeTable(&table, nil))
	sink, folded := strings.Index(table.String(), "lake  unavailable"), strings.Index(table.String(), "39 resources in sync")
	if sink < 0 || folded < sink || !strings.Contains(table.String(), "kind7 ") || strings.Contains(table.String(), "kind8 ") {
		t.Error(table.String())
	}
}

func TestStatusOfAnotherServer(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"it answers 404 Not Found":    http.NotFound,
		"status can't be read":        func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"of a bridge of this version": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"informers":7}`) },
	} {
		server := httptest.NewServer(answer)
		var stdout, stderr testkit.Buffer
		code := run(t.Context(), []string{"status", "--admin-address", server.Listener.Addr().String()}, nil, &stdout, &stderr)
		if code != ExitRefused || !strings.Contains(stderr.String(), name) || stdout.String() != "" {
			t.Errorf("exit code %d, want %d and %q: %s%s", code, ExitRefused, name, stdout.String(), stderr.String())
		}
		server.Close()
	}
}

func TestStatusReady(t *testing.T) {
	for _, c := range []struct {
		what, answer   string
		status, code   int
		stdout, stderr string
	}{
		{"a ready bridge", "ok\n", 200, ExitClean, "ready\n", ""},
		{
			"a bridge that waits for a broker", "sink lake: can't reach the broker (for 3m20s)\n", 503, ExitFailed,
			"sink lake: can't reach the broker (for 3m20s)\n", "not ready",
		},
		{"another server", "<html>", 200, ExitRefused, "", "is not the admin endpoint of a bridge"},
		{"a server without /readyz", "404 page not found\n", 404, ExitRefused, "", "it answers 404 Not Found to /readyz"},
	} {
		t.Run(c.what, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "" {
					t.Errorf("it asks for %s, with %q", r.URL, r.Header.Get("Authorization"))
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			}))
			defer server.Close()
			var stdout, stderr testkit.Buffer
			args := []string{"status", "--ready", "--admin-address", server.Listener.Addr().String()}
			code := run(t.Context(), args, nil, &stdout, &stderr)
			if code != c.code || stdout.String() != c.stdout || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
			}
		})
	}
}

// A bridge whose admin server has a certificate is found by its configuration, or with --admin-ca.
func TestStatusOverTLS(t *testing.T) {
	authority := testkit.NewCA(t)
	dir := t.TempDir()
	certFile, keyFile := authority.Files(t, dir, "bridge.streaming.svc")
	secured, err := admin.ServerTLS(certFile, keyFile)
	testkit.OK(t, err)
	server, err := admin.New(admin.Config{Address: "127.0.0.1:0", TLS: secured})
	testkit.OK(t, err)
	testkit.OK(t, server.Listen(t.Context()))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		testkit.OK(t, <-ended)
	})
	address := server.Addr().String()
	file := filepath.Join(dir, "bridge.yaml")
	testkit.OK(t, os.WriteFile(file, fmt.Appendf(nil, "admin: {address: %q, tls: {certFile: %q, keyFile: %q}}\n",
		address, certFile, keyFile), 0o600))
	for name, c := range map[string]struct {
		args         []string
		code         int
		stdout, says string
	}{
		"the configuration": {[]string{"--config", file}, ExitClean, "ready\n", ""},
		"its certificate is for another name": {
			[]string{"--admin-address", address, "--admin-ca", certFile}, ExitRefused, "", "certificate",
		},
		"without its authority": {
			[]string{"--admin-address", address}, ExitRefused, "", "speaks TLS: name the authority of its certificate with --admin-ca",
		},
		"a file that is none": {
			[]string{"--admin-address", address, "--admin-ca", file}, ExitRefused, "", "--admin-ca: there is no certificate in PEM in",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr testkit.Buffer
			code := run(t.Context(), append([]string{"status", "--ready"}, c.args...), nil, &stdout, &stderr)
			if code != c.code || stdout.String() != c.stdout || !strings.Contains(stderr.String(), c.says) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
			}
		})
	}
	t.Run("a command without its authority", func(t *testing.T) {
		token := filepath.Join(dir, "token")
		testkit.OK(t, os.WriteFile(token, []byte(strings.Repeat("x", 16)), 0o600))
		var stdout, stderr testkit.Buffer
		code := run(t.Context(), []string{"reload", "--admin-address", address, "--token-file", token}, nil, &stdout, &stderr)
		if code != ExitRefused || !strings.Contains(stderr.String(), "speaks TLS") {
			t.Errorf("exit code %d, stderr %q", code, stderr.String())
		}
	})
}

func TestFit(t *testing.T) {
	const text = "HEAD of the table\none\ntwo and more\nthree\n"
	for _, test := range []struct {
		what          string
		width, height int
		want          string
	}{
		{"a table that fits is left", 40, 24, text},
		{"a long line is cut", 12, 24, "HEAD of the…\none\ntwo and more\nthree\n"},
		{"what is below the end is counted", 40, 4, "HEAD of the table\none\n… 2 more lines\n"},
	} {
		t.Run(test.what, func(t *testing.T) {
			if got := fit(text, test.width, test.height); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
