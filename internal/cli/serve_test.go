package cli

import (
	"context"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubebridge/bridge/internal/testkit"
)

// A request that is open when the server stops ends before the history that it reads is closed.
func TestServeUntilWaits(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended atomic.Bool
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
		time.Sleep(100 * time.Millisecond) // what it still has to do
		ended.Store(true)
	})
	go func() {
		if response, err := http.Get("http://" + listener.Addr().String()); err == nil {
			response.Body.Close()
		}
	}()
	testkit.OK(t, serveUntil(ctx, listener, handler))
	if !ended.Load() {
		t.Error("a request is still open")
	}
}

// Each time has a context; the first is the current one, and the others have a path.
func TestServedTimes(t *testing.T) {
	o := serveOptions{historyOptions: &historyOptions{}, live: true, at: []string{"2026-11-22T14:03:00+01:00", "4711", "1h ago"}}
	times, err := o.times()
	testkit.OK(t, err)
	text, err := o.kubeconfig("127.0.0.1:8443", times, "token", nil)
	testkit.OK(t, err)
	c, err := clientcmd.Load(text)
	testkit.OK(t, err)
	got := map[string]string{}
	for name, context := range c.Contexts {
		got[name] = c.Clusters[context.Cluster].Server
	}
	hourAgo := got["1h-ago"]
	delete(got, "1h-ago")
	want := map[string]string{
		"now":  "https://127.0.0.1:8443",
		"4711": "https://127.0.0.1:8443/at/4711", "2026-11-22T14:03:00+01:00": "https://127.0.0.1:8443/at/2026-11-22T13:03:00Z",
	}
	if !maps.Equal(got, want) || c.CurrentContext != "now" {
		t.Errorf("%v, current %s; want %v", got, c.CurrentContext, want)
	}
	at, err := time.Parse(time.RFC3339, strings.TrimPrefix(hourAgo, "https://127.0.0.1:8443/at/"))
	if since := time.Since(at); err != nil || since < time.Hour || since > time.Hour+time.Minute {
		t.Errorf("an hour ago is %s (%v)", hourAgo, err)
	}
	for _, at := range []string{"1h", "noon"} {
		o.at = []string{"1h", at}
		if _, err := o.times(); err == nil || !strings.Contains(err.Error(), "--at") {
			t.Errorf("1h and %s: %v", at, err)
		}
	}
}
