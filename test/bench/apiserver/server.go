package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Server is the API server. It may be used concurrently.
type Server struct {
	pods   int64
	item   *template // of a list
	object *template // of a watch, which has kind and apiVersion
	mux    *http.ServeMux
	groups string // beside the core, as JSON

	lists, watches, frames atomic.Int64

	mu      sync.Mutex
	changed chan struct{} // closed when version moves
	version int64         // the newest
}

// New makes a server of so many pods.
func New(pods int) *Server {
	s := &Server{
		pods: int64(pods), item: newTemplate("{"), object: newTemplate(`{"kind":"Pod","apiVersion":"v1",`),
		version: firstVersion + int64(pods), changed: make(chan struct{}), mux: http.NewServeMux(),
	}
	s.mux.HandleFunc("GET /api", fixed(`{"kind":"APIVersions","versions":["v1"]}`))
	s.mux.HandleFunc("GET /apis", func(w http.ResponseWriter, r *http.Request) {
		fixed(fmt.Sprintf(`{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}`, s.groups))(w, r)
	})
	s.mux.HandleFunc("GET /api/v1", fixed(`{"kind":"APIResourceList","groupVersion":"v1","resources":[`+
		`{"name":"namespaces","singularName":"namespace","namespaced":false,"kind":"Namespace","verbs":["get","list","watch"]},`+
		`{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"],"shortNames":["po"]}]}`))
	s.mux.HandleFunc("GET /version", fixed(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
	s.mux.HandleFunc("GET /api/v1/namespaces/kube-system", fixed(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"6f1c0d2e-0000-4000-8000-000000000001","resourceVersion":"1"}}`))
	s.mux.HandleFunc("GET /api/v1/pods", s.servePods)
	s.mux.HandleFunc("GET /api/v1/namespaces", func(w http.ResponseWriter, r *http.Request) {
		s.serveNothing(w, r, "v1", "Namespace")
	})
	s.mux.HandleFunc("POST /bench/updates", s.serveUpdates)
	s.mux.HandleFunc("GET /bench/counts", s.serveCounts)
	return s
}

func fixed(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

// ServeHTTP answers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) servePods(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	if q.Get("watch") == "true" || q.Get("watch") == "1" {
		s.watches.Add(1)
		if q.Get("sendInitialEvents") == "true" {
			s.lists.Add(1)
		}
		s.serveWatch(w, r)
		return
	}
	if q.Get("limit") != "1" { // else it is a probe
		s.lists.Add(1)
	}
	s.serveList(w, r)
}

// Update makes n updates: at once, or so many a second. It returns when they are made.
func (s *Server) Update(n, perSecond int) {
	if perSecond <= 0 {
		s.move(int64(n))
		return
	}
	began := time.Now()
	for made := 0; made < n; {
		time.Sleep(time.Millisecond)
		due := min(n, int(time.Since(began).Seconds()*float64(perSecond)))
		s.move(int64(due - made))
		made = due
	}
}

func (s *Server) move(n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version += n
	close(s.changed)
	s.changed = make(chan struct{})
}

// now is the version, and what is closed when it moves.
func (s *Server) now() (int64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.changed
}

// podAt is the pod that a version changed.
func (s *Server) podAt(version int64) int { return int((version - firstVersion - 1) % s.pods) }

// versionOf is a pod's version when the server is at one.
func (s *Server) versionOf(pod int, at int64) int64 {
	rounds := (at - firstVersion - 1 - int64(pod)) / s.pods
	return firstVersion + 1 + int64(pod) + rounds*s.pods
}

func (s *Server) serveUpdates(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("n"))
	rate, errRate := strconv.Atoi(r.FormValue("rate"))
	if err != nil || errRate != nil {
		http.Error(w, "n and rate must be numbers", http.StatusBadRequest)
		return
	}
	s.Update(n, rate)
	fmt.Fprintln(w, "made")
}

// Counts of requests and of watch events sent.
type Counts struct{ Lists, Watches, Frames int64 }

func (s *Server) serveCounts(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(Counts{s.lists.Load(), s.watches.Load(), s.frames.Load()})
}
