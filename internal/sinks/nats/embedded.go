package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// EmbeddedConfig of an Embedded server. Zero values mean the documented default.
type EmbeddedConfig struct {
	// Host to listen on. Default 127.0.0.1: the server asks nobody who they are.
	Host string
	// Port to listen on. Default 4222; -1: one that is free.
	Port int
	// StoreDir is where streams are kept. Required.
	StoreDir string
	// MaxStore is how much streams may take on disk, in bytes. Default 10 GiB. A full store refuses messages until
	// old ones expire, so streams should have a limit of their own below it (Stream.MaxBytes).
	MaxStore int64
	// MaxPayload is the largest message, in bytes with headers. Default 8 MiB: no Kubernetes object is larger.
	MaxPayload int
	// SyncInterval is how often streams are synced to disk, which is what a power failure can lose; the end of the process
	// loses nothing. Default 5s; negative: before every ack, at about a tenth of the speed.
	SyncInterval time.Duration
	// Log gets what the server says: its notices as Debug, its warnings and errors as Warn. Default: nothing is logged.
	Log *slog.Logger
}

// Embedded is a NATS server with JetStream in this process: for a first try, for development, for a single node.
// Its clients connect over TCP like those of any other server.
type Embedded struct {
	cfg EmbeddedConfig
	log *slog.Logger

	ready   chan struct{} // closed when clients can connect
	ended   chan struct{} // closed when Run has returned
	started atomic.Bool
	server  atomic.Pointer[server.Server]
	err     error // why Run returned; constant once ended is closed
}

// NewEmbedded checks the configuration. The server starts with Run.
func NewEmbedded(cfg EmbeddedConfig) (*Embedded, error) {
	cfg.Host = cmp.Or(cfg.Host, "127.0.0.1")
	cfg.Port = cmp.Or(cfg.Port, server.DEFAULT_PORT)
	cfg.MaxStore = cmp.Or(cfg.MaxStore, 10<<30)
	cfg.MaxPayload = cmp.Or(cfg.MaxPayload, server.MAX_PAYLOAD_MAX_SIZE)
	cfg.SyncInterval = cmp.Or(cfg.SyncInterval, 5*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.StoreDir == "":
		return nil, errors.New("embedded NATS server: no directory to store streams in")
	case cfg.Port < -1 || cfg.Port > 65535:
		return nil, fmt.Errorf("embedded NATS server: port %d: want 1 to 65535, or -1 for one that is free", cfg.Port)
	case cfg.MaxStore < 0:
		return nil, fmt.Errorf("embedded NATS server: a store of %d bytes", cfg.MaxStore)
	}
	return &Embedded{cfg: cfg, log: cfg.Log, ready: make(chan struct{}), ended: make(chan struct{})}, nil
}

// Run starts the server and returns when ctx has ended and the server has stopped, its streams synced, with nil; or
// with the reason why it could not start. It may be called once.
func (e *Embedded) Run(ctx context.Context) error {
	if e.started.Swap(true) {
		return errors.New("embedded NATS server: Run was called before")
	}
	e.err = e.run(ctx)
	close(e.ended)
	return e.err
}

func (e *Embedded) run(ctx context.Context) error {
	unlock, err := lockDir(e.cfg.StoreDir)
	if err != nil {
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	defer unlock()
	if err := e.probePort(ctx); err != nil {
		return err
	}
	s, err := server.NewServer(e.options())
	if err != nil {
		return fmt.Errorf("embedded NATS server: %w", err)
	}
	fatal := make(chan error, 1)
	s.SetLoggerV2(serverLog{e.log, fatal}, false, false, false)
	s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if err := e.awaitStart(ctx, s, fatal); err != nil || ctx.Err() != nil {
		return err
	}
	e.server.Store(s)
	close(e.ready)
	e.log.Info("embedded NATS server is ready", "url", s.ClientURL(), "store", e.cfg.StoreDir)
	return e.await(ctx, fatal)
}

// await is the server's life. A fatal error in it means that it can't go on.
func (e *Embedded) await(ctx context.Context, fatal <-chan error) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return fmt.Errorf("embedded NATS server: %w", err)
	}
}

func (e *Embedded) options() *server.Options {
	return &server.Options{
		ServerName:        "bridge-embedded",
		Host:              e.cfg.Host,
		Port:              e.cfg.Port,
		JetStream:         true,
		StoreDir:          e.cfg.StoreDir,
		JetStreamMaxStore: e.cfg.MaxStore,
		MaxPayload:        int32(e.cfg.MaxPayload),
		SyncInterval:      max(e.cfg.SyncInterval, 0),
		SyncAlways:        e.cfg.SyncInterval < 0,
		NoSigs:            true, // signals are the bridge's
	}
}

// awaitStart waits until clients can connect. A fatal error is the server's reason for not getting there.
func (e *Embedded) awaitStart(ctx context.Context, s *server.Server, fatal <-chan error) error {
	for !s.ReadyForConnections(50 * time.Millisecond) {
		select {
		case <-ctx.Done():
			return nil
		case err := <-fatal:
			return e.explain(err)
		default:
		}
	}
	select {
	case err := <-fatal:
		return e.explain(err)
	default:
		return nil
	}
}

func (e *Embedded) explain(err error) error {
	return fmt.Errorf("embedded NATS server with its store in %s: %w", e.cfg.StoreDir, err)
}

// probePort finds out early what the server would only log.
func (e *Embedded) probePort(ctx context.Context) error {
	if e.cfg.Port == -1 {
		return nil
	}
	address := net.JoinHostPort(e.cfg.Host, strconv.Itoa(e.cfg.Port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("embedded NATS server: %s is in use, perhaps by a NATS server: set another port, or use that server: nats: {url: nats://%s}: %w", address, address, err)
	}
	if err != nil {
		return fmt.Errorf("embedded NATS server: can't listen on %s: set another host or port: %w", address, err)
	}
	return listener.Close()
}

// WaitReady blocks until clients can connect. It returns Run's error when Run returns before, or ctx's.
func (e *Embedded) WaitReady(ctx context.Context) error {
	select {
	case <-e.ready:
		return nil
	case <-e.ended:
		return cmp.Or(e.err, errors.New("embedded NATS server: stopped before it was ready"))
	case <-ctx.Done():
		return fmt.Errorf("embedded NATS server is not ready: %w", context.Cause(ctx))
	}
}

// ClientURL is where clients connect. With Port -1 it is known once the server is ready, and "" before.
func (e *Embedded) ClientURL() string {
	if s := e.server.Load(); s != nil {
		return s.ClientURL()
	}
	if e.cfg.Port == -1 {
		return ""
	}
	return "nats://" + net.JoinHostPort(e.cfg.Host, strconv.Itoa(e.cfg.Port))
}
