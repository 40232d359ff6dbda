package admin_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/app/admin"
)

// readers are the routes that show the cluster, probes those that are open to everybody.
var (
	readers = []string{
		"/status", "/object?resource=pods&namespace=shop&name=web", "/tail", "/history/versions?object=pods/web",
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol",
		"/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1",
	}
	probes = []string{"/healthz", "/readyz", "/metrics", "/", "/page.js"}
)

// everything is a server with all of its routes.
func everything(access admin.Access) admin.Config {
	return admin.Config{Look: newLooked(), History: historian{}, Pprof: true, Control: &controller{}, Access: access}
}

func TestReaders(t *testing.T) {
	trusting := access()
	trusting.OwnUser = true
	own, _ := start(t, everything(trusting))
	strict, _ := start(t, everything(access()))
	remote := access()
	remote.Remote = true
	open, _ := start(t, everything(remote))
	none, _ := start(t, everything(admin.Access{Remote: true}))

	bearer := "Bearer " + token
	for _, test := range []struct {
		name, url string
		headers   map[string]string
		code      int
	}{
		{"the own user", own, nil, 200},
		{"the own user at localhost", own, map[string]string{"Host": "localhost:8080"}, 200},
		{"the own user by IPv6", own, map[string]string{"Host": "[::1]:8080"}, 200},
		{"the page itself", own, map[string]string{"Sec-Fetch-Site": "same-origin"}, 200},
		{"DNS rebinding", own, map[string]string{"Host": "evil.example:8080"}, 403},
		{"a name that begins like ours", own, map[string]string{"Host": "localhost.evil.example"}, 403},
		{"a mesh's own address", own, map[string]string{"Host": "127.0.0.6"}, 403},
		{"a proxy", own, map[string]string{"X-Forwarded-For": "10.0.0.9"}, 403},
		{"a proxy that names the host", own, map[string]string{"X-Forwarded-Host": "10.0.0.9"}, 403},
		{"a proxy by RFC 7239", own, map[string]string{"Forwarded": "for=10.0.0.9"}, 403},
		{"a proxy by Via", own, map[string]string{"Via": "1.1 x"}, 403},
		{"nginx", own, map[string]string{"X-Real-IP": "10.0.0.9"}, 403},
		{"Linkerd", own, map[string]string{"l5d-client-id": "web.shop"}, 403},
		{"Envoy", own, map[string]string{"X-Envoy-External-Address": "10.0.0.9"}, 403},
		{"a page of another site", own, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"a page of another port", own, map[string]string{"Sec-Fetch-Site": "same-site"}, 403},

		{"a pod, without the token", strict, nil, 401},
		{"a pod, with it", strict, map[string]string{"Authorization": bearer}, 200},
		{"a pod, with another", strict, map[string]string{"Authorization": "Bearer u"}, 401},
		{"a pod, with it through a proxy", strict, map[string]string{"Authorization": bearer, "Via": "1.1 x"}, 403},

		{"remote, with it through a proxy", open, map[string]string{"Authorization": bearer, "Via": "1.1 x"}, 200},
		{"remote, without it", open, map[string]string{"Via": "1.1 x"}, 401},
		{"remote, where there is none", none, map[string]string{"Authorization": "Bearer "}, 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, path := range readers {
				if strings.Contains(path, "seconds") && test.code == 200 {
					continue // a second each, and only one CPU profile at a time
				}
				if got := with(t, test.url+path, test.headers).StatusCode; got != test.code {
					t.Errorf("%s: %d, want %d", path, got, test.code)
				}
			}
		})
	}
}

func TestProbesAreOpen(t *testing.T) {
	url, _ := start(t, everything(access()))
	for _, path := range probes {
		for _, headers := range []map[string]string{
			nil, {"Host": "10.1.2.3:8080"}, {"Via": "1.1 x"},
		} {
			if got := with(t, url+path, headers).StatusCode; got != 200 {
				t.Errorf("%s with %v: %d", path, headers, got)
			}
		}
	}
}

// TestForeignHost is DNS rebinding: a page has its own name resolved to 127.0.0.1.
func TestForeignHost(t *testing.T) {
	trusting := access()
	trusting.OwnUser, trusting.Remote = true, true
	url, _ := start(t, everything(trusting))
	for _, path := range append(append([]string{"/control/reload", "/nothing"}, readers...), probes...) {
		headers := map[string]string{"Host": "evil.example", "Authorization": "Bearer " + token}
		if got := with(t, url+path, headers).StatusCode; got != 403 {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// A server that listens everywhere, for probes and metrics, is open to its own machine only.
func TestOtherHosts(t *testing.T) {
	outside := outsideAddress(t)
	trusting := access()
	trusting.OwnUser = true
	run := func(remote bool) (port string) {
		config := everything(trusting)
		config.Address, config.Access.Remote = "0.0.0.0:0", remote
		server, err := admin.New(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Listen(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- server.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		_, port, _ = net.SplitHostPort(server.Addr().String())
		return port
	}
	at := func(host, port string) string { return "http://" + net.JoinHostPort(host, port) }
	port := run(false)
	bearer := map[string]string{"Authorization": "Bearer " + token}

	t.Run("readers", func(t *testing.T) {
		for _, headers := range []map[string]string{nil, bearer, {"Host": "localhost"}} {
			if got := with(t, at(outside, port)+"/status", headers).StatusCode; got != 403 {
				t.Errorf("from another host with %v: %d", headers, got)
			}
		}
		if got := with(t, at("127.0.0.1", port)+"/status", nil).StatusCode; got != 200 {
			t.Errorf("from this machine: %d", got)
		}
	})
	t.Run("commands", func(t *testing.T) {
		reload := at(outside, port) + "/control/reload"
		if code, body := do(t, request(t, reload, "")); code != 403 || !strings.Contains(body, "own machine only") {
			t.Errorf("from another host: %d %s", code, body)
		}
		fake := request(t, reload, "")
		fake.Host = "localhost"
		if code, _ := do(t, fake); code != 403 {
			t.Errorf("from another host that says localhost: %d", code)
		}
		if code, body := do(t, request(t, at("127.0.0.1", port)+"/control/reload", "")); code != 200 {
			t.Errorf("from this machine: %d %s", code, body)
		}
	})
	t.Run("probes", func(t *testing.T) {
		for _, host := range []string{"", "bridge.streaming.svc:8080"} {
			if got := with(t, at(outside, port)+"/healthz", map[string]string{"Host": host}).StatusCode; got != 200 {
				t.Errorf("as %q: %d", host, got)
			}
		}
	})
	t.Run("admin.remote", func(t *testing.T) {
		open := at(outside, run(true))
		if code, body := do(t, request(t, open+"/control/reload", "")); code != 200 {
			t.Errorf("with the token: %d %s", code, body)
		}
		if got := with(t, open+"/status", nil).StatusCode; got != 401 {
			t.Errorf("without it: %d", got)
		}
	})
}

// The right token passes while wrong ones are tried from the same address.
func TestGuessing(t *testing.T) {
	remote := access()
	remote.Remote = true
	url, _ := start(t, everything(remote))
	send := func(bearer string) int {
		r := request(t, url+"/control/reload", "")
		r.Header.Set("Authorization", "Bearer "+bearer)
		code, _ := do(t, r)
		return code
	}
	for i := range 200 {
		if code := send(fmt.Sprint("guess-", i)); code != 401 {
			t.Fatalf("wrong token %d was answered with %d", i, code)
		}
	}
	if code := send(token); code != 200 {
		t.Errorf("the right token behind them: %d", code)
	}
}

// blocking is a collector that waits until it is released.
type blocking struct {
	entered chan struct{}
	release chan struct{}
	desc    *prometheus.Desc
}

func (b *blocking) Describe(ch chan<- *prometheus.Desc) { ch <- b.desc }

func (b *blocking) Collect(ch chan<- prometheus.Metric) {
	b.entered <- struct{}{}
	<-b.release
	ch <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, 1)
}

func TestScrapesAreBounded(t *testing.T) {
	b := &blocking{make(chan struct{}, 8), make(chan struct{}), prometheus.NewDesc("bridge_test", "Test.", nil, nil)}
	registry := prometheus.NewRegistry()
	registry.MustRegister(b)
	url, _ := start(t, admin.Config{Registry: registry})
	var scrapes sync.WaitGroup
	for range 4 {
		scrapes.Go(func() {
			if code, _, body := get(t, url+"/metrics", ""); code != 200 || !strings.Contains(body, "bridge_test 1") {
				t.Errorf("a scrape: %d", code)
			}
		})
	}
	for range 4 {
		select {
		case <-b.entered:
		case <-time.After(10 * time.Second):
			t.Fatal("four scrapes do not run at once")
		}
	}
	if code, _, _ := get(t, url+"/metrics", ""); code != http.StatusServiceUnavailable {
		t.Errorf("a fifth at once: %d", code)
	}
	close(b.release)
	scrapes.Wait()
}
