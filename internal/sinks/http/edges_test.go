package http_test

import (
	nethttp "net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// moody is an endpoint that its operator has answer events in another way.
type moody struct {
	*receiver
	answer atomic.Pointer[func(w nethttp.ResponseWriter, r *nethttp.Request) (done bool)]
}

func (m *moody) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	if answer := m.answer.Load(); r.Method == nethttp.MethodPost && answer != nil && (*answer)(w, r) {
		return
	}
	m.receiver.ServeHTTP(w, r)
}

// TestEdges is what an operator does to an endpoint while the sink runs: what is said within 20
// seconds, that other objects continue where only one is concerned, and that all is stored within a
// minute of the cause's end.
func TestEdges(t *testing.T) {
	if testing.Short() {
		t.Skip("what is stalled is reported after 10 seconds")
	}
	const (
		web, api = "web", "api"
		webSize  = 5_000 // of the event that a cell is about
	)
	status := func(code int) func(nethttp.ResponseWriter, *nethttp.Request) bool {
		return func(w nethttp.ResponseWriter, _ *nethttp.Request) bool {
			w.WriteHeader(code)
			return true
		}
	}
	for _, c := range []struct {
		name   string
		answer func(nethttp.ResponseWriter, *nethttp.Request) bool // nil: it is stopped
		says   []string                                            // while web can't be stored; none where it is
		alone  bool                                                // only web is concerned
	}{
		{"stopped", nil, []string{"connection refused"}, false},
		{"its token was changed", status(nethttp.StatusUnauthorized), []string{"nothing of ", "401 Unauthorized"}, false},
		{"its right was taken", status(nethttp.StatusForbidden), []string{"nothing of ", "403 Forbidden"}, false},
		{"moved", status(nethttp.StatusNotFound), []string{"nothing of ", "404 Not Found"}, false},
		{"read-only", status(nethttp.StatusServiceUnavailable), []string{"nothing of ", "503 Service Unavailable"}, false},
		{"full", status(nethttp.StatusInsufficientStorage), []string{"nothing of ", "507 Insufficient Storage"}, false},
		{"silent", func(_ nethttp.ResponseWriter, r *nethttp.Request) bool {
			<-r.Context().Done()
			return true
		}, []string{"nothing of ", "no answer within 2s"}, false},
		{"slow", func(nethttp.ResponseWriter, *nethttp.Request) bool {
			time.Sleep(time.Second)
			return false
		}, nil, false},
		{"it takes smaller bodies", func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
			return r.ContentLength > webSize/2 && status(nethttp.StatusRequestEntityTooLarge)(w, r)
		}, nil, false},
		{"it asks for a pause", func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
			w.Header().Set("Retry-After", "1")
			return status(nethttp.StatusTooManyRequests)(w, r)
		}, []string{"nothing of ", "429 Too Many Requests"}, false},
		{"one object is forbidden", func(w nethttp.ResponseWriter, r *nethttp.Request) bool {
			return r.Header.Get("ce-name") == web && status(nethttp.StatusForbidden)(w, r)
		}, []string{"nothing of ", "403 Forbidden"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &moody{receiver: &receiver{t: t, address: testkit.Address(t)}}
			m.receiver.handler = m
			m.start()
			t.Cleanup(func() { m.stop() })
			e := &sinktest.Edge{TB: t}
			e.Start(newSink(t, http.Options{Config: http.Config{
				URL: settings.URL("http://" + m.address + "/events"), Timeout: 2 * time.Second,
			}}), 5*time.Second)
			e.Add(api, 1, 300)
			e.Add(web, 1, 300)
			e.Want(time.Minute, api+"1", web+"1")
			if c.answer == nil {
				m.stop()
			} else {
				m.answer.Store(&c.answer)
			}
			e.Add(web, 2, webSize)
			if c.alone {
				e.Add(api, 2, 300)
				e.Want(5*time.Second, api+"2")
			}
			if len(c.says) == 0 {
				e.Want(5*time.Second, web+"2")
				e.IsWell()
				return
			}
			e.Says(c.says...)
			if c.answer == nil {
				m.start()
			}
			m.answer.Store(nil)
			wanted := []string{web + "2"}
			if !c.alone {
				e.Add(api, 2, 300)
				wanted = append(wanted, api+"2")
			}
			e.Want(time.Minute, wanted...)
			e.IsWell()
			var got []string
			for _, r := range m.read(t, 4) {
				got = append(got, r.Attributes["name"]+r.Attributes["resourceversion"])
			}
			slices.Sort(got)
			testkit.Want(t, slices.Compact(got), api+"1", api+"2", web+"1", web+"2")
		})
	}
}
