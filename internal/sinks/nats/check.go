package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Check reports whether Open would succeed. It changes nothing. connect is why the server can't be
// used, stream what is wrong with the stream. A stream that is missing and would be created is no
// problem. Streams with a template as name are checked when events arrive. Whether the user may
// publish to the subjects is not checked: only publishing shows that. The sink must not be open.
func (s *Sink) Check(ctx context.Context) (connect, stream error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return classified(fmt.Errorf("connect to NATS at %s: %w", s.cfg.Connection.redactedURL(),
			err)), nil
	}
	defer s.disconnect(conn)
	url := s.cfg.Connection.connectedTo(conn)
	if !conn.HeadersSupported() {
		return classified(fmt.Errorf("NATS at %s: %w: NATS 2.2 or newer is needed", url,
			nats.ErrHeadersNotSupported)), nil
	}
	if s.cfg.Mode == Core || s.cfg.Stream.Manage == Off || s.several {
		return nil, nil
	}
	if err := s.checkExisting(ctx, conn); err != nil {
		return nil, classified(fmt.Errorf("NATS at %s: %w", url, s.withServerError(err)))
	}
	return nil, nil
}

// checkExisting is ensureStream without creating anything.
func (s *Sink) checkExisting(ctx context.Context, conn *nats.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Connection.Timeout)
	defer cancel()
	js, err := s.jetStream(conn)
	if err != nil {
		return err
	}
	stream, err := js.Stream(ctx, s.cfg.Stream.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.cfg.Stream.Manage == Verify:
		return missingStream(s.cfg.Stream)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return s.creatable(ctx, js)
	case err != nil:
		return explainAPI(s.cfg.Stream.Name, err)
	}
	return s.checkStream(stream.CachedInfo().Config, s.cfg.Stream)
}

// creatable reports an error when another stream has the subjects.
func (s *Sink) creatable(ctx context.Context, js jetstream.JetStream) error {
	for _, subject := range s.cfg.Stream.Subjects {
		if _, err := js.StreamNameBySubject(ctx, subject); err == nil {
			return overlapError(ctx, js, s.cfg.Stream)
		}
	}
	return nil
}
