package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	guesses guesses
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
	err := server.Serve(withReserve(listener))
	if !unhook() {
		<-stopped // Serve returns when the shutdown begins, not when it ends
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return errors.Join(fmt.Errorf("admin server: %w", err), server.Close())
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
