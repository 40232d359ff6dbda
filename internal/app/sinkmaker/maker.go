package sinkmaker

import (
	"context"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// sinkKind is one kind of sink, with the configuration of one sink of that kind. Adding a kind adds
// a case to kindOf and a type that implements this.
type sinkKind interface {
	// key of the section in the configuration.
	key() string
	// Make makes the sink, and the broker that has to run for it, nil for none. It starts nothing
	// and contacts nobody. An error is a keyError where it is about one key.
	make(m *Maker, log *slog.Logger) (sinks.Sink, Service, error)
	// Check asks the broker whether it is as the configuration wants it, and changes nothing.
	// topics are those that a template stands for, as far as they depend on no object. Errors are
	// keyErrors.
	check(ctx context.Context, m *Maker, topics func(template string) []string) error
	// Target is where at its broker the sink sends to; nil for standard output.
	target() []string
	// sample shows events as the sink would send them.
	sample() (Form, error)
	// describe says where events go, and what is around them in a message; nil where nothing is
	// published.
	describe() *asyncapi.Sink
}

// kindOf is the one place that asks what a sink is.
func kindOf(c *config.Sink) sinkKind {
	switch {
	case c.NATS != nil:
		return natsKind{c, c.NATS}
	case c.Kafka != nil:
		return kafkaKind{c, c.Kafka}
	case c.HTTP != nil:
		return httpKind{c, c.HTTP}
	case c.History != nil:
		return historyKind{c, c.History}
	default:
		return stdoutKind{c, c.Stdout}
	}
}

// Maker makes sinks out of their configuration.
type Maker struct {
	Cluster  string
	StateDir string
	Out      io.Writer // for stdout
	Log      *slog.Logger
	Registry prometheus.Registerer // nil for none
	// Fence keeps a replica that led before out of a stream, and Confirm asks whether this one
	// leads. Both are nil where there are no others.
	Fence   *nats.Fence
	Confirm func(context.Context) error
	Feeds   *Feeds // nil where it is not known what feeds the sinks
	// Serve lets others ask a history that is open; nil where nothing can ask.
	Serve func(questions *query.Questions) (end func())
}

// Make is the sink, and the broker that has to run for it, nil for none. Nothing is started or
// contacted. Problems reports what the error is about.
func (m *Maker) Make(c *config.Sink) (sinks.Sink, Service, error) {
	sink, broker, err := kindOf(c).make(m, m.Log.With("sink", c.Name))
	if err != nil {
		return nil, nil, err
	}
	return sink, broker, nil
}

// Service is something that has to run before a sink can work.
type Service interface {
	Run(ctx context.Context) error
	WaitReady(ctx context.Context) error
}

// Check asks the broker of a sink whether it is as the configuration wants it, and changes nothing.
// topics are those that a template stands for, as far as they depend on no object. Problems
// reports what the error is about.
func (m *Maker) Check(
	ctx context.Context, c *config.Sink, topics func(template string) []string,
) error {
	return kindOf(c).check(ctx, m, topics)
}

// Describe says where the events of a sink go, and what is around them in a message; nil where
// nothing is published.
func Describe(c *config.Sink) *asyncapi.Sink { return kindOf(c).describe() }

// Form is what events look like at a sink.
type Form struct {
	Prefix     string              // of the attributes' headers
	Value      func(string) string // an attribute's value as a header
	Structured bool
	// Destination describes where the event would go.
	Destination func(*event.Event) string
}

// FormOf is what events look like at a sink.
func FormOf(c *config.Sink) (Form, error) { return kindOf(c).sample() }
