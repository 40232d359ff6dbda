package nats

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Connect connects as a sink does, for a reader of what sinks have stored: with the same bounds on
// what the server may send. The caller closes the connection.
func Connect(ctx context.Context, c Connection) (*nats.Conn, error) {
	cfg := Config{Connection: c}.withDefaults()
	s := &Sink{cfg: cfg, log: cfg.Log, metrics: newMetrics(nil)}
	s.acks = newAcks(s.metrics)
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", cfg.Connection.redactedURL(), err)
	}
	return conn, nil
}

// API is the JetStream API of a connection: by its domain or prefix where it has one.
func API(conn *nats.Conn, c Connection) (jetstream.JetStream, error) {
	switch {
	case c.Domain != "":
		return jetstream.NewWithDomain(conn, c.Domain)
	case c.APIPrefix != "":
		return jetstream.NewWithAPIPrefix(conn, c.APIPrefix)
	default:
		return jetstream.New(conn)
	}
}
