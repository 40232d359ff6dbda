package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/testkit"
)

// scroll is an API server with a history that was written before: version v is the next state of
// pod v modulo the number of pods. It keeps nothing of it, so that it can be as long as a test
// wants, and each watch gets it from where it asks.
type scroll struct {
	pods     int64
	released atomic.Int64 // versions up to here have happened
	lists    atomic.Int64 // requests for more than a probe
	watches  atomic.Int64
	emitted  []atomic.Int64
	padding  []byte
}

// firstVersion is what the empty cluster begins with.
const firstVersion = 1000

func newScroll(t testing.TB, changes, pods, size int) (s *scroll, url string) {
	s = &scroll{pods: int64(pods), emitted: make([]atomic.Int64, changes+1)}
	for i := 0; len(s.padding) < size-400; i++ {
		s.padding = fmt.Appendf(s.padding, `{"name":"VARIABLE_%d","value":"%x"},`, i, uint32(i)*2654435761)
	}
	s.padding = bytes.TrimSuffix(s.padding, []byte(","))
	mux := http.NewServeMux()
	serveDiscovery(mux, `{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","shortNames":["po"],"verbs":["get","list","watch"]}`)
	mux.HandleFunc("GET /api/v1/pods", s.serve)
	serveLeases(t, mux, testkit.NewLeases())
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s, server.URL
}

func (s *scroll) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	switch {
	case query.Get("sendInitialEvents") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden"}`)
	case query.Get("watch") != "":
		from, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
		s.watches.Add(1)
		s.watch(w, r, from-firstVersion)
	default:
		if query.Get("limit") != "1" {
			s.lists.Add(1)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.list(s.released.Load()))
	}
}

// list is what exists at a version, in one page: the newest version of each pod that was added.
func (s *scroll) list(version int64) []byte {
	list := fmt.Appendf(nil, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[`, firstVersion+version)
	first := max(0, version-s.pods) + 1
	for v := first; v <= version; v++ {
		if v > first {
			list = append(list, ',')
		}
		list = s.pod(list, v)
	}
	return append(list, "]}"...)
}

// watch sends the changes behind a version as they happen, and bookmarks while nothing does.
func (s *scroll) watch(w http.ResponseWriter, r *http.Request, from int64) {
	w.Header().Set("Content-Type", "application/json")
	flusher := w.(http.Flusher)
	flusher.Flush()
	var frame []byte
	idle := 0
	for r.Context().Err() == nil {
		if from == s.released.Load() {
			flusher.Flush()
			time.Sleep(2 * time.Millisecond)
			if idle++; idle%100 == 0 {
				fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+"\n", firstVersion+from)
			}
			continue
		}
		from++
		frame = s.frame(frame[:0], from)
		s.emitted[from].CompareAndSwap(0, time.Now().UnixNano())
		if _, err := w.Write(frame); err != nil {
			return
		}
	}
}

// frame is one change: the first of a pod adds it.
func (s *scroll) frame(dst []byte, version int64) []byte {
	kind := "MODIFIED"
	if version <= s.pods {
		kind = "ADDED"
	}
	dst = fmt.Appendf(dst, `{"type":"%s","object":`, kind)
	return append(s.pod(dst, version), "}\n"...)
}

// pod is the object that has a version.
func (s *scroll) pod(dst []byte, version int64) []byte {
	pod := (version - 1) % s.pods
	dst = fmt.Appendf(dst, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"pod-%d","namespace":"shop","uid":"uid-%d","resourceVersion":"%d",`+
		`"creationTimestamp":"2026-11-21T10:00:00Z"},"spec":{"containers":[{"name":"c","env":[`, pod, pod, firstVersion+version)
	dst = append(dst, s.padding...)
	return append(dst, `]}]}}`...)
}

// serveDiscovery answers what the bridge asks of a cluster before it watches.
func serveDiscovery(mux *http.ServeMux, resources ...string) {
	serve := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		})
	}
	serve("/api", `{"kind":"APIVersions","versions":["v1"]}`)
	serve("/apis", `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	serve("/api/v1", `{"kind":"APIResourceList","groupVersion":"v1","resources":[`+strings.Join(resources, ",")+`]}`)
	serve("/api/v1/namespaces/kube-system", `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"11111111-2222-3333-4444-555555555555"}}`)
}
