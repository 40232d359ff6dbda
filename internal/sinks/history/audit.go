package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// openStream opens a stream with audit events, with the credentials of a sink.
func (s *Sink) openStream(ctx context.Context, c *audit.Stream, after json.RawMessage) (audit.Reader, error) {
	cfg := source.Config{From: c.From, Subject: c.Subject, Client: "bridge audit", Raw: true}
	if after != nil {
		if err := json.Unmarshal(after, &cfg.After); err != nil {
			return nil, fmt.Errorf("how far it was read: %w", err)
		}
	}
	var with sinks.Section
	if c.Sink != "" && s.cfg.Section != nil {
		with = s.cfg.Section(c.Sink)
	}
	var err error
	switch with := with.(type) {
	case *nats.Config:
		err = cfg.UseNATS(with, s.cfg.Cluster, s.cfg.StateDir)
	case *kafka.Config:
		err = cfg.UseKafka(with, s.cfg.Cluster)
	default:
		if c.Sink != "" {
			err = fmt.Errorf("there is no sink %s", c.Sink)
		}
	}
	if err != nil {
		return nil, err
	}
	reader, err := source.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return streamReader{reader}, nil
}

// streamReader is a source.Reader as package audit wants it.
type streamReader struct{ source.Reader }

func (r streamReader) Messages(ctx context.Context) iter.Seq2[*audit.Message, error] {
	return func(yield func(*audit.Message, error) bool) {
		for m, err := range r.Reader.Messages(ctx) {
			if errors.Is(err, source.ErrOther) {
				err = audit.ErrRecreated
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&audit.Message{Lane: m.Lane, Offset: m.Offset, Data: m.Data, Err: m.Err}, nil) {
				return
			}
		}
	}
}

func (r streamReader) Position() (json.RawMessage, error) { return json.Marshal(r.Reader.Position()) }

func (r streamReader) Removed() int { return len(r.Reader.Removed()) }
