package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// DefaultAddress is where the server listens where nothing else is configured: on this machine
// only.
const DefaultAddress = "127.0.0.1:8080"

// Reason is one thing for which the bridge is not ready.
type Reason struct {
	// What is not ready: "informer workloads/pods", "sink lake".
	What string `json:"what"`
	// Message says why, for a person.
	Message string `json:"message"`
	// Since is when it began; zero when that is not known.
	Since time.Time `json:"since,omitzero"`
}

// Config of a Server. Zero values mean the documented default.
type Config struct {
	// Address to listen on, as host:port; port 0 for any free one. Default: DefaultAddress.
	Address string
	// TLS has the server's certificate; nil: the server speaks plain HTTP.
	TLS *tls.Config
	// Registry returns what /metrics shows. Default: nothing.
	Registry prometheus.Gatherer
	// Ready returns the reasons for which the bridge is not ready; none means that it is. Default:
	// always ready. Called concurrently.
	Ready func() []Reason
	// Status returns what /status shows: a value that encodes as JSON. Default: {}. Called
	// concurrently.
	Status func() any
	// Look serves the live tail of events and the state of objects. nil: they are not served.
	Look Inspector
	// History answers questions about the past. nil: they are not served.
	History Historian
	// Samples returns the recent past of metrics: a value that encodes as JSON. nil: it is not
	// served. Called concurrently.
	Samples func(window time.Duration) any
	// Pprof serves Go's profiles.
	Pprof bool
	// Control changes the running bridge; nil: nothing can be changed here.
	Control Controller
	// Access says who may do that, and who may read /status, /tail, /object,
	// /history and the profiles.
	Access Access
	// Log gets state changes and failed requests. Default: nothing is logged.
	Log *slog.Logger
}

// Server is the HTTP server. Its methods may be called concurrently; Run once.
type Server struct {
	config  Config
	log     *slog.Logger
	handler http.Handler
	// ending is closed when the server stops: requests that don't end by themselves do so then.
	ending chan struct{}

	mu sync.Mutex
	// listener is there from Listen on. Guarded by mu.
	listener net.Listener
}

// New makes a server. It listens when Listen or Run is called.
func New(config Config) (*Server, error) {
	config.Address = cmp.Or(config.Address, DefaultAddress)
	if _, _, err := net.SplitHostPort(config.Address); err != nil {
		return nil, fmt.Errorf("admin address %q: want host:port", config.Address)
	}
	if config.Registry == nil {
		config.Registry = prometheus.NewRegistry()
	}
	if config.Ready == nil {
		config.Ready = func() []Reason { return nil }
	}
	if config.Status == nil {
		config.Status = func() any { return struct{}{} }
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		config: config, log: config.Log.With("component", "admin"),
		ending: make(chan struct{}),
	}
	s.handler = s.ownNames(s.routes())
	return s, nil
}

// Listen takes the address, so that a start can fail at once when somebody else has it. Run calls
// it when nobody did. Connections wait until Run answers them.
func (s *Server) Listen(ctx context.Context) error {
	if s.Addr() != nil {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.config.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("admin address %s is in use, perhaps by another bridge: choose another "+
			"with admin.address (--admin-address), or \"\" for none: %w", s.config.Address, err)
	}
	if err != nil {
		return fmt.Errorf("admin address %s: %w", s.config.Address, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = listener
	return nil
}

// Addr returns where the server listens, with the port that it got; nil before Listen and Run.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Run serves until ctx ends, and returns when no request is being answered any more. It returns nil
// for a stop, else why it could not listen or continue.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		// A CPU profile takes 30 s by default and a trace as long as asked for; both lift their own
		// deadline.
		WriteTimeout:   30 * time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext:    withPeer,
	}
	s.mu.Lock()
	listener := s.listener
	s.mu.Unlock()
	s.log.Info("admin server listens", "address", listener.Addr().String())

	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(stopped)
		s.shutdown(ctx, server)
	})
	err := s.serve(server, withReserve(listener))
	if !unhook() {
		<-stopped // Serve returns when the shutdown begins, not when it ends
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return errors.Join(fmt.Errorf("admin server: %w", err), server.Close())
}

func (s *Server) serve(server *http.Server, listener net.Listener) error {
	if s.config.TLS == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = s.config.TLS
	return server.ServeTLS(listener, "", "") // the configuration has the certificate
}

// shutdown lets requests finish for a moment, and then breaks them off: a profile must not delay
// the end of the bridge.
func (s *Server) shutdown(ctx context.Context, server *http.Server) {
	const patience = time.Second
	close(s.ending)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close() // reports only what was open, and that is what it is for
	}
}

// untilStop returns a context that ends with ctx, and when the server stops. Call cancel
// afterwards.
func (s *Server) untilStop(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(ctx)
	go func() {
		select {
		case <-s.ending:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// logPrinter is what promhttp takes for a log.
type logPrinter struct{ log *slog.Logger }

func (p logPrinter) Println(v ...any) {
	p.log.Warn("metrics can't be gathered", "err", strings.TrimSpace(fmt.Sprintln(v...)))
}

const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.root)
	mux.HandleFunc("GET /page.css", pageFile("page.css", "text/css; charset=utf-8"))
	scripts, err := fs.Glob(pageFiles, "page/*.js")
	if err != nil {
		panic(err) // the pattern is right
	}
	for _, script := range scripts {
		name := path.Base(script)
		mux.HandleFunc("GET /"+name, pageFile(name, "text/javascript; charset=utf-8"))
	}
	s.inspectRoutes(mux)
	s.historyRoutes(mux)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /status", s.reader(s.status))
	if s.config.Samples != nil {
		mux.Handle("GET /samples", s.reader(s.samples))
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.config.Registry, promhttp.HandlerOpts{
		ErrorLog: logPrinter{s.log},
		// One collector that fails must not hide the metrics of all others.
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
		// Whoever scrapes must not be able to occupy the process. Prometheus itself gives up after
		// 10 s.
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	}))
	s.controlRoutes(mux)
	if s.config.Pprof {
		mux.Handle("GET /debug/pprof/", s.reader(pprof.Index))
		mux.Handle("GET /debug/pprof/cmdline", s.reader(pprof.Cmdline))
		mux.Handle("GET /debug/pprof/profile", s.reader(pprof.Profile))
		mux.Handle("GET /debug/pprof/symbol", s.reader(pprof.Symbol))
		mux.Handle("GET /debug/pprof/trace", s.reader(pprof.Trace))
	}
	return mux
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	text := "/healthz  the process answers\n/readyz   everything is in sync, or what is not\n" +
		"/metrics  Prometheus\n/status   JSON\n"
	if s.config.Samples != nil {
		text += "/samples  the last 24 hours of some metrics; ?window=15m\n"
	}
	if s.config.Look != nil {
		text += "/tail     events as they are settled; ?payload=true, ?filter= with CEL\n" +
			"/object   the last settled state of an object; " +
			"?resource=pods&namespace=shop&name=web\n" +
			"/objects  the objects that an owner's uid has; ?index=owner&value=\n"
	}
	if s.config.History != nil {
		text += "/history/  versions, object, diff, timeline, lanes, state, compare, search, losses, " +
			"resources; ?object=deploy/web&namespace=shop&at=14:03\n"
	}
	if s.config.Pprof {
		text += "/debug/pprof/  profiles\n"
	}
	s.text(w, http.StatusOK, text)
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	s.text(w, http.StatusOK, "ok\n")
}

// readiness is the JSON of /readyz.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons"`
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	reasons := s.config.Ready()
	code := http.StatusOK
	if len(reasons) > 0 {
		code = http.StatusServiceUnavailable
	}
	if wantsJSON(r) {
		if reasons == nil {
			reasons = []Reason{}
		}
		s.json(w, code, readiness{Ready: len(reasons) == 0, Reasons: reasons})
		return
	}
	s.text(w, code, readyText(reasons))
}

// readyText returns a line for each reason: "sink lake: can't reach the broker (for 3m20s)".
func readyText(reasons []Reason) string {
	if len(reasons) == 0 {
		return "ok\n"
	}
	var out strings.Builder
	for _, r := range reasons {
		fmt.Fprintf(&out, "%s: %s", r.What, r.Message)
		if !r.Since.IsZero() {
			fmt.Fprintf(&out, " (for %v)", time.Since(r.Since).Round(time.Second))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func wantsJSON(r *http.Request) bool {
	return r.URL.Query().Get("format") == "json" || strings.Contains(r.Header.Get("Accept"),
		"application/json")
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	s.json(w, http.StatusOK, s.config.Status())
}

// samples answers with the recent past of metrics, of the last quarter of an hour by default.
func (s *Server) samples(w http.ResponseWriter, r *http.Request) {
	window := 15 * time.Minute
	if text := r.URL.Query().Get("window"); text != "" {
		var err error
		if window, err = time.ParseDuration(text); err != nil || window <= 0 || window > 24*time.Hour {
			s.refuse(w, &Error{
				http.StatusBadRequest, fmt.Errorf("window %q: want a time up to 24h, as 15m", text),
			})
			return
		}
	}
	s.json(w, http.StatusOK, s.config.Samples(window))
}

// json encodes before it answers, so that a value that can't be encoded is a 500 and no half
// document.
func (s *Server) json(w http.ResponseWriter, code int, value any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		s.log.Error("status can't be encoded", "err", err)
		http.Error(w, "status can't be encoded: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.answer(w, code, "application/json", body.String())
}

func (s *Server) text(w http.ResponseWriter, code int, body string) {
	s.answer(w, code, "text/plain; charset=utf-8", body)
}

func (s *Server) answer(w http.ResponseWriter, code int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	if _, err := io.WriteString(w, body); err != nil {
		s.log.Debug("admin answer was not read", "err", err)
	}
}

// The page has no build chain: these are its files.
//
//go:embed page/*.html page/*.css page/*.js
var pageFiles embed.FS

// contentPolicy lets the page load what the bridge serves, and nothing else: no inline script or
// style, no other host, no frame around it.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src " +
	"'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// root is the status page for browsers, and the list of paths for everybody else.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		s.index(w, r)
		return
	}
	pageFile("page.html", "text/html; charset=utf-8")(w, r)
}

// pageFile serves one of the page's files. It is in the binary, so a browser asks again each time:
// that costs little, and an old script never meets a new bridge.
func pageFile(name, contentType string) http.HandlerFunc {
	content, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic("admin: the page has no " + name) // they are embedded
	}
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	}
}
