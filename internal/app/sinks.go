package app

import (
	"context"
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/asyncapi"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
)

// sinkKind is one kind of sink, with the configuration of one sink of that kind. Adding a kind adds
// a case to kindOf and a type that implements this.
type sinkKind interface {
	// key of the section in the configuration.
	key() string
	// make makes the sink, and the broker that has to run for it, nil for none. It starts nothing
	// and contacts nobody. An error is a keyError where it is about one key.
	make(m *sinkMaker, log *slog.Logger) (sinks.Sink, service, error)
	// check asks the broker whether it is as the configuration wants it, and changes nothing.
	// topics are those that a template stands for, as far as they depend on no object. Errors are
	// keyErrors.
	check(ctx context.Context, m *sinkMaker, topics func(template string) []string) error
	// target is where at its broker the sink sends to; nil for standard output.
	target() []string
	// sample shows events as the sink would send them.
	sample() (sampleForm, error)
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

// sinkMaker makes sinks out of their configuration.
type sinkMaker struct {
	cluster  string
	stateDir string
	out      io.Writer // for stdout
	log      *slog.Logger
	registry prometheus.Registerer // nil for none
	replicas *replicas             // nil for none
	feeds    *feeds                // nil where it is not known what feeds the sinks
	// histories are those that can be asked; nil for nobody who asks.
	histories *histories
}

// make is the sink, and the broker that has to run for it, nil for none. Nothing is started and
// nobody is contacted. What the error is about, sinkProblems tells.
func (m *sinkMaker) make(c *config.Sink) (sinks.Sink, service, error) {
	sink, broker, err := kindOf(c).make(m, m.log.With("sink", c.Name))
	if err != nil {
		return nil, nil, err
	}
	return sink, broker, nil
}

// service is something that has to run before a sink can work.
type service interface {
	Run(ctx context.Context) error
	WaitReady(ctx context.Context) error
}

// stdoutKind prints.
type stdoutKind struct {
	sink *config.Sink
	*config.Stdout
}

func (stdoutKind) key() string { return "stdout" }

func (stdoutKind) target() []string { return nil }

func (k stdoutKind) make(m *sinkMaker, _ *slog.Logger) (sinks.Sink, service, error) {
	sink, err := stdout.New(stdout.Config{Writer: m.out, Format: k.Format})
	return sink, nil, err
}

func (stdoutKind) check(context.Context, *sinkMaker, func(string) []string) error { return nil }

func (k stdoutKind) sample() (sampleForm, error) {
	return sampleForm{
		structured: true,
		destination: func(*event.Event) string {
			return "sink " +
				k.sink.Name + ": standard output"
		},
	}, nil
}

func (k stdoutKind) describe() *asyncapi.Sink { return &asyncapi.Sink{Structured: true} }
