package sinkmaker

import (
	"context"
	"log/slog"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
)

// stdoutKind prints.
type stdoutKind struct {
	sink *config.Sink
	*config.Stdout
}

func (stdoutKind) key() string { return "stdout" }

func (stdoutKind) target() []string { return nil }

func (k stdoutKind) make(m *Maker, _ *slog.Logger) (sinks.Sink, Service, error) {
	sink, err := stdout.New(stdout.Config{Writer: m.Out, Format: k.Format})
	return sink, nil, err
}

func (stdoutKind) check(context.Context, *Maker, func(string) []string) error { return nil }

func (k stdoutKind) sample() (Form, error) {
	return Form{
		Structured: true,
		Destination: func(*event.Event) string {
			return "sink " +
				k.sink.Name + ": standard output"
		},
	}, nil
}

func (k stdoutKind) describe() *asyncapi.Sink { return &asyncapi.Sink{Structured: true} }
