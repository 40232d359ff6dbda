package nats

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Connect connects as the sink does, for who reads what a sink has stored: the same credentials,
// TLS and bounds on what the server may send. Of the configuration it uses what is about the
// connection. Close the connection when it is not used any more.
func Connect(ctx context.Context, cfg Config) (*nats.Conn, error) {
	cfg = cfg.withDefaults()
	s := &Sink{cfg: cfg, log: cfg.Log, metrics: newMetrics(nil)}
	s.acks = newAcks(s.metrics)
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", redactURLs(cfg.URL), err)
	}
	return conn, nil
}

// API is the JetStream API where the configuration has it.
func API(conn *nats.Conn, c Config) (jetstream.JetStream, error) {
	switch {
	case c.Domain != "":
		return jetstream.NewWithDomain(conn, c.Domain)
	case c.APIPrefix != "":
		return jetstream.NewWithAPIPrefix(conn, c.APIPrefix)
	default:
		return jetstream.New(conn)
	}
}
