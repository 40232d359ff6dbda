package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ServeIdle serves so many resources more, "idle0", "idle1" and so on of the group bench.test, in
// which nothing is and nothing happens.
func (s *Server) ServeIdle(n int) {
	if n == 0 {
		return
	}
	const version = "bench.test/v1"
	var resources []string
	for i := range n {
		resources = append(resources, fmt.Sprintf(`{"name":"idle%d","singularName":"idle","namespaced":true,"kind":"Idle%d","verbs":["get","list","watch"]}`, i, i))
	}
	s.mux.HandleFunc("GET /apis/"+version, fixed(fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[%s]}`,
		version, strings.Join(resources, ","))))
	s.groups = fmt.Sprintf(`{"name":"bench.test","versions":[{"groupVersion":%q,"version":"v1"}],"preferredVersion":{"groupVersion":%q,"version":"v1"}}`, version, version)
	serve := func(w http.ResponseWriter, r *http.Request) {
		s.serveNothing(w, r, version, "Idle"+strings.TrimPrefix(r.PathValue("resource"), "idle"))
	}
	s.mux.HandleFunc("GET /apis/"+version+"/{resource}", serve)
	s.mux.HandleFunc("GET /apis/"+version+"/namespaces/{namespace}/{resource}", serve)
}

// serveNothing answers a list without items, or a watch without events.
func (s *Server) serveNothing(w http.ResponseWriter, r *http.Request, version, kind string) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	if q.Get("watch") != "true" && q.Get("watch") != "1" {
		if q.Get("limit") != "1" { // else it is a probe
			s.lists.Add(1)
		}
		_, _ = fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[]}`, kind, version, firstVersion)
		return
	}
	s.watches.Add(1)
	if q.Get("sendInitialEvents") == "true" {
		s.lists.Add(1)
		_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n",
			kind, version, firstVersion)
	}
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
	select {
	case <-time.After(30 * time.Minute):
	case <-r.Context().Done():
	}
}
