// Package server runs a NATS server with JetStream in this process: for a first try, for
// development, for a single node.
//
// It takes a directory and a port; clients connect over TCP as to any other server. What it has
// acknowledged survives a kill of the process; a power failure can lose the last seconds. New
// checks the configuration and starts nothing. Run has the server's life and ends with its context.
package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats-server/v2/server"
)

const (
	// maxStore bounds what streams take on disk. A full store refuses messages until old ones
	// expire, so streams should have a limit of their own below it.
	maxStore = 10 << 30
	// syncInterval is how often streams are synced to disk: a power failure can lose that much; the
	// end of the process loses nothing.
	syncInterval = 5 * time.Second
)

// Config of a Server. Zero values mean the documented default.
type Config struct {
	// Host to listen on. Default 127.0.0.1: connections are not encrypted.
	Host string
	// Port to listen on. Default 4222; -1: one that is free.
	Port int
	// StoreDir is the directory of the streams. Required.
	StoreDir string
	// Token gives the token that clients must send. Run calls it once. nil: everybody is admitted.
	Token func() (string, error)
	// IsOwnUser reports whether the process at the other end of a connection on this machine has
	// the user of this process. Who connects to a loopback address so is admitted without the
	// token. nil in a pod, where others have the same user.
	IsOwnUser func(remote, local net.Addr) bool
	// Log gets the server's notices as Debug, its warnings and errors as Warn. Default: nothing is
	// logged.
	Log *slog.Logger
}

// Server is a NATS server with JetStream in this process.
type Server struct {
	cfg Config
	log *slog.Logger

	ready   chan struct{} // closed when clients can connect
	ended   chan struct{} // closed when Run has returned
	started atomic.Bool
	inner   atomic.Pointer[server.Server] // nil before clients can connect
	err     error                         // why Run returned; constant once ended is closed
}

// New checks the configuration. The server starts with Run.
func New(cfg Config) (*Server, error) {
	cfg.Host = cmp.Or(cfg.Host, "127.0.0.1")
	cfg.Port = cmp.Or(cfg.Port, server.DEFAULT_PORT)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.StoreDir == "":
		return nil, errors.New("embedded NATS server: no directory to store streams in")
	case cfg.Port < -1 || cfg.Port > 65535:
		return nil, fmt.Errorf("embedded NATS server: port %d: want 1 to 65535, or -1 for one "+
			"that is free", cfg.Port)
	}
	return &Server{
		cfg: cfg, log: cfg.Log, ready: make(chan struct{}),
		ended: make(chan struct{}),
	}, nil
}

// Run starts the server and returns when ctx has ended and the server has stopped, its streams
// synced, with nil; or with the reason why it could not start. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	if s.started.Swap(true) {
		return errors.New("embedded NATS server: Run was called before")
	}
	s.err = s.run(ctx)
	close(s.ended)
	return s.err
}

func (s *Server) run(ctx context.Context) error {
	unlock, err := lockDir(s.cfg.StoreDir)
	if err != nil {
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	defer unlock()
	if err := s.probePort(ctx); err != nil {
		return err
	}
	options := s.options()
	var guard *guard
	if s.cfg.Token != nil {
		if guard, err = newGuard(&s.cfg); err != nil {
			return fmt.Errorf("embedded NATS server: %w", err)
		}
		options.CustomClientAuthentication = guard
	}
	inner, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	if guard != nil {
		guard.server = inner
	}
	fatal := make(chan error, 1)
	inner.SetLoggerV2(serverLog{s.log, fatal}, false, false, false)
	inner.Start()
	defer func() {
		inner.Shutdown()
		inner.WaitForShutdown()
	}()
	if err := s.awaitStart(ctx, inner, fatal); err != nil || ctx.Err() != nil {
		return err
	}
	s.inner.Store(inner)
	close(s.ready)
	s.log.Info("embedded NATS server is ready", "url", inner.ClientURL(), "store", s.cfg.StoreDir)
	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return fmt.Errorf("embedded NATS server: %w", err)
	}
}

func (s *Server) options() *server.Options {
	return &server.Options{
		ServerName:        "bridge-embedded",
		Host:              s.cfg.Host,
		Port:              s.cfg.Port,
		JetStream:         true,
		StoreDir:          s.cfg.StoreDir,
		JetStreamMaxStore: maxStore,
		MaxPayload:        server.MAX_PAYLOAD_MAX_SIZE, // 8 MiB: no Kubernetes object is larger
		SyncInterval:      syncInterval,
		NoSigs:            true, // signals are the bridge's
	}
}

// awaitStart waits until clients can connect. A fatal error is the server's reason for not getting
// there.
func (s *Server) awaitStart(ctx context.Context, inner *server.Server, fatal <-chan error) error {
	for !inner.ReadyForConnections(50 * time.Millisecond) {
		select {
		case <-ctx.Done():
			return nil
		case err := <-fatal:
			return s.explain(err)
		default:
		}
	}
	select {
	case err := <-fatal:
		return s.explain(err)
	default:
		return nil
	}
}

func (s *Server) explain(err error) error {
	return fmt.Errorf("embedded NATS server with its store in %s: %w", s.cfg.StoreDir, err)
}

// probePort reports a port that can't be used: the server would only log it.
func (s *Server) probePort(ctx context.Context) error {
	if s.cfg.Port == -1 {
		return nil
	}
	address := net.JoinHostPort(s.cfg.Host, strconv.Itoa(s.cfg.Port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("embedded NATS server: %s is in use, perhaps by a NATS server: set "+
			"another port, or use that server: nats: {servers: [nats://%s]}: %w", address, address, err)
	}
	if err != nil {
		return fmt.Errorf("embedded NATS server: can't listen on %s: set another host or port: %w",
			address, err)
	}
	return listener.Close()
}

// WaitReady blocks until clients can connect. It returns Run's error when Run returns before, or
// ctx's.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.ended:
		return cmp.Or(s.err, errors.New("embedded NATS server: stopped before it was ready"))
	case <-ctx.Done():
		return fmt.Errorf("embedded NATS server is not ready: %w", context.Cause(ctx))
	}
}

// ClientURL is where clients connect. With Port -1 it is known once the server is ready, and ""
// before.
func (s *Server) ClientURL() string {
	if inner := s.inner.Load(); inner != nil {
		return inner.ClientURL()
	}
	if s.cfg.Port == -1 {
		return ""
	}
	return "nats://" + net.JoinHostPort(s.cfg.Host, strconv.Itoa(s.cfg.Port))
}

// guard admits clients: those who send the token, and, where IsOwnUser says so, those of this
// process's user. Everybody else on this machine could read, forge and purge events.
type guard struct {
	token     [sha256.Size]byte
	isOwnUser func(remote, local net.Addr) bool // nil for nobody
	server    *server.Server                    // set before the server starts
}

func newGuard(cfg *Config) (*guard, error) {
	token, err := cfg.Token()
	if err == nil && token == "" {
		err = errors.New("its token is empty")
	}
	return &guard{token: sha256.Sum256([]byte(token)), isOwnUser: cfg.IsOwnUser}, err
}

// Check implements server.Authentication.
func (g *guard) Check(c server.ClientAuthentication) bool {
	got := sha256.Sum256([]byte(c.GetOpts().Token))
	if subtle.ConstantTimeCompare(got[:], g.token[:]) == 1 {
		return true
	}
	local, ok := g.server.Addr().(*net.TCPAddr)
	return g.isOwnUser != nil && ok && local.IP.IsLoopback() &&
		g.isOwnUser(c.RemoteAddress(), local)
}

// lockDir keeps a second server out of the directory: NATS does not, and two servers damage each
// other's streams. The lock ends with the process.
func lockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store directory: %w", err)
	}
	lock, err := vfs.Default.Lock(filepath.Join(dir, "bridge.lock"))
	if err != nil {
		return nil, fmt.Errorf("store directory %s is in use by another process, or can't be "+
			"locked: %w", dir, err)
	}
	// the process is done with it; nothing can be done about an error
	return func() { _ = lock.Close() }, nil
}

// serverLog writes the server's log to slog.
type serverLog struct {
	log   *slog.Logger
	fatal chan<- error
}

func (l serverLog) Noticef(format string, args ...any) {
	l.log.Debug("nats server", "said", fmt.Sprintf(format, args...))
}

func (l serverLog) Warnf(format string, args ...any) {
	l.log.Warn("nats server", "said", fmt.Sprintf(format, args...))
}

func (l serverLog) Errorf(format string, args ...any) {
	l.log.Warn("nats server", "said", fmt.Sprintf(format, args...))
}
func (l serverLog) Debugf(string, ...any) {}
func (l serverLog) Tracef(string, ...any) {}

// Fatalf ends Run. The server's own logger would end the process.
func (l serverLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	select {
	case l.fatal <- err:
	default: // the first is the reason
		l.log.Error("nats server", "err", err)
	}
}
