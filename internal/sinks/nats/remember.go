package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

var _ sinks.Rememberer = (*Sink)(nil)

// Remembers reads the last message of the resource, and the last of the kind of about: two
// requests.
func (s *Sink) Remembers(
	ctx context.Context, about *event.Event, ours func(sinks.Trace) bool,
) (bool, error) {
	if s.cfg.Mode == Core || s.cfg.Stream.Manage == Off {
		return false, nil
	}
	js, err := s.jetStream(s.conn)
	if err != nil {
		return false, classified(err)
	}
	names := []string{s.cfg.Stream.Name}
	if s.several {
		if names, err = s.namesOfStreams(ctx, js); err != nil {
			return false, classified(err)
		}
	}
	for _, name := range names {
		for _, subject := range s.subjectsLike(about) {
			if found, err := s.lastIs(ctx, js, name, subject, ours); found || err != nil {
				return found, err
			}
		}
	}
	return false, nil
}

// subjectsLike returns where events of the same resource go, and where those of the same kind go.
func (s *Sink) subjectsLike(about *event.Event) []string {
	known := map[string]string{
		"group": cmp.Or(about.Group, "core"), "resource": about.Resource,
		"kind": about.Kind, "informer": about.Informer,
	}
	if about.Namespace != "" {
		known["namespace"] = about.Namespace
	}
	return []string{
		s.cfg.pattern(s.events.subject, known),
		string(s.events.appendSubject(nil, about)),
	}
}

// lastIs passes the last message of a subject, which may have wildcards, to ours.
func (s *Sink) lastIs(
	ctx context.Context, js jetstream.JetStream, name, subject string, ours func(sinks.Trace) bool,
) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Connection.Timeout)
	defer cancel()
	stream, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, s.unanswered(fmt.Errorf("look at stream %s: %w", name, err))
	}
	m, err := stream.GetLastMsgForSubject(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, s.unanswered(fmt.Errorf("look at the last message of %s in stream %s: %w",
			subject, name, err))
	}
	id := m.Header.Get(nats.MsgIdHdr)
	return id != "" &&
			ours(sinks.Trace{
				MessageID:    baseID(id, s.dead.idSuffix),
				PartitionKey: partitionKey(m),
			}),
		nil
}

// partitionKey of a message in either mode, "" for none.
func partitionKey(m *jetstream.RawStreamMsg) string {
	if key := m.Header.Get("ce-partitionkey"); key != "" {
		return key
	}
	var e struct{ PartitionKey string }
	if json.Unmarshal(m.Data, &e) != nil {
		return ""
	}
	return e.PartitionKey
}
