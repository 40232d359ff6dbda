package cli

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

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
