package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"syscall"
	"time"
)

// controlServer is the control API, for tests on the same machine. It has no authentication.
type controlServer struct {
	http.Server
	url string
}

// serveControl starts to serve. What is under way when it is closed is cut short: by then
// everything is being stopped.
func (s *supervisor) serveControl(ctx context.Context) (*controlServer, error) {
	listener, err := net.Listen("tcp", s.opts.control)
	if err != nil {
		return nil, fmt.Errorf("listen on --control %s: %w", s.opts.control, err)
	}
	c := &controlServer{
		Server: http.Server{Handler: s.controlHandler(ctx), ReadHeaderTimeout: 10 * time.Second},
		url:    "http://" + listener.Addr().String(),
	}
	go func() { _ = c.Serve(listener) }()
	return c, nil
}

func (s *supervisor) controlHandler(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.handleHealth)
	mux.HandleFunc("GET /status", s.handleStatus)
	mux.HandleFunc("GET /requests", s.handleRequests)
	for pattern, do := range map[string]operation{
		"POST /compact":            func(ctx context.Context, _ parameters) error { return s.compact(ctx) },
		"POST /snapshot":           func(_ context.Context, p parameters) error { return s.saveSnapshot(p.name) },
		"POST /restore":            func(ctx context.Context, p parameters) error { return s.restoreSnapshot(ctx, p.name) },
		"POST /restart-apiserver":  func(ctx context.Context, p parameters) error { return s.restartAPIServer(ctx, p.signal) },
		"POST /stop-apiserver":     func(_ context.Context, p parameters) error { s.takeAPIServerAway(p.signal); return nil },
		"POST /start-apiserver":    func(ctx context.Context, _ parameters) error { return s.bringAPIServerBack(ctx) },
		"POST /pause-controllers":  func(context.Context, parameters) error { s.pauseControllers(); return nil },
		"POST /resume-controllers": func(ctx context.Context, _ parameters) error { return s.resumeControllers(ctx) },
	} {
		// Not the request's context: an operation continues when the client gives up, since a
		// cluster that is left half restored helps nobody. It ends when we are asked to stop.
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.operate(ctx, w, r, do) })
	}
	return mux
}

// operation is one of operations.go.
type operation func(context.Context, parameters) error

// operate answers with the etcd revision after the operation, and how long it took.
func (s *supervisor) operate(ctx context.Context, w http.ResponseWriter, r *http.Request, do operation) {
	params, err := parseParameters(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	begin := time.Now()
	err = do(ctx, params)
	took := time.Since(begin)
	if err != nil {
		progress("%s failed after %.1fs: %v", r.URL.RequestURI(), took.Seconds(), err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	progress("%s done in %.1fs", r.URL.RequestURI(), took.Seconds())
	writeJSON(w, operationResult{Revision: s.revision(), Took: took.Seconds()})
}

type operationResult struct {
	Revision int64   `json:"revision"` // of etcd, after the operation
	Took     float64 `json:"took"`     // seconds
}

// handleHealth answers 200 when the API server is ready, and 503 with the reason otherwise.
func (s *supervisor) handleHealth(w http.ResponseWriter, r *http.Request) {
	if err := s.checkAPIServer(r.Context()); err != nil {
		http.Error(w, "kube-apiserver: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

type statusResult struct {
	Version    string            `json:"version"`
	Revision   int64             `json:"revision"`
	Components []componentStatus `json:"components"`
}

type componentStatus struct {
	Name string `json:"name"`
	PID  int    `json:"pid"` // 0: stopped
	Log  string `json:"log"`
}

func (s *supervisor) handleStatus(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := statusResult{Version: kubernetesVersion(), Revision: s.etcd.revision()}
	for _, p := range append([]*process{s.apiServer}, s.controllers...) {
		status.Components = append(status.Components, componentStatus{p.name, p.pid(), p.logFile})
	}
	writeJSON(w, status)
}

func (s *supervisor) handleRequests(w http.ResponseWriter, r *http.Request) {
	filter, err := requestFilterOf(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	result, err := countRequests(s.auditLog(), filter)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, result)
}

// revision is that of etcd now.
func (s *supervisor) revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.etcd.revision()
}

// parameters are those of all operations; one that takes none ignores them.
type parameters struct {
	name   string // of a snapshot
	signal syscall.Signal
}

// snapshotName keeps names usable as file names.
var snapshotName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func parseParameters(r *http.Request) (parameters, error) {
	p := parameters{name: cmp.Or(r.FormValue("name"), "default")}
	if !snapshotName.MatchString(p.name) {
		return p, fmt.Errorf("name=%s: must be letters, digits, dots and dashes", p.name)
	}
	var known bool
	p.signal, known = signals[cmp.Or(r.FormValue("signal"), "TERM")]
	if !known {
		return p, fmt.Errorf("signal=%s: must be TERM, INT or KILL", r.FormValue("signal"))
	}
	return p, nil
}

var signals = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone away: nobody to answer
}
