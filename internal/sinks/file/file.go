// Package file is the sink that appends events to a file, as lines of JSON, and rotates it.
//
// It takes events from a publisher, in the order given (sinks.ByLane: all events are one lane). An
// acknowledged event is a whole line on the disk: the file is synced once for each batch. Events
// that were written and not acknowledged come again, with the same ids.
//
// The file always holds whole lines: what an error has left of a batch is cut off, and what a kill
// has left of a line is cut off when the file is opened next.
//
// One process writes to a file. The lines are those of package stdout.
package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
)

// Config is the section `file` of a sink.
//
// File appends a line per event to a file: a structured CloudEvent as JSON. An event counts as sent
// when its line is on the disk. One bridge writes to a file, and nobody else moves or shortens it.
// Nothing can be read back: events whose lines were written just before a crash come again, with
// the same ids. A full disk delays this sink and no other.
type Config struct {
	// Path of the file. It is made when missing, with its directory. `<path>.lock` keeps a second
	// process out. Required.
	Path string `yaml:"path"`
	// MaxBytes bounds the file. Before a line would exceed it, the file is renamed to `<path>.1`,
	// that one to `<path>.2`, and so on. A longer line has a file of its own. 0: no bound.
	MaxBytes settings.Size `yaml:"maxBytes" default:"64MiB"`
	// Keep is how many renamed files are kept; older ones are removed, whether anybody has read
	// them or not. 0: none.
	Keep int `yaml:"keep" default:"5"`
}

var _ interface {
	sinks.Section
	sinks.OwnEncoder
} = (*Config)(nil)

// Validate requires a path.
func (c *Config) Validate(ps *settings.Report, path string) {
	if c.Path == "" && !ps.Has(path+".path") {
		ps.Add(path+".path", "required")
	}
}

// OwnEncoding is that of a line.
func (*Config) OwnEncoding() string { return "file, whose lines are structured" }

// New makes the sink.
func (c *Config) New(sinks.Common, *sinks.Env) (sinks.Sink, sinks.Service, error) {
	sink, err := New(c)
	return sink, nil, err
}

// Places is the file.
func (c *Config) Places() []string { return []string{"file " + c.Path} }

// Form is that of a structured event.
func (c *Config) Form(common sinks.Common) (sinks.Form, error) {
	return sinks.Form{
		Structured:  true,
		Destination: func(*event.Event) string { return "sink " + common.Name + ": file " + c.Path },
	}, nil
}

// Describe says that events are structured.
func (*Config) Describe() *asyncapi.Sink { return &asyncapi.Sink{Structured: true} }

// Sink appends events. It implements sinks.Sink.
type Sink struct {
	path  string
	lines *stdout.Sink // writes into file
	file  *rotatedFile
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It opens nothing.
func New(c *Config) (*Sink, error) {
	s := &Sink{path: c.Path, file: newRotatedFile(c)}
	lines, err := stdout.NewLines(s.file, stdout.JSON, s.explain)
	s.lines = lines
	return s, err
}

// Open locks and opens the file, and cuts off a line without an end.
func (s *Sink) Open(context.Context) error {
	if err := s.file.Open(); err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	return nil
}

// Close closes the file, once no write is under way.
func (s *Sink) Close() error { return s.file.Close() }

// Order is ByLane: lines come in the order given.
func (s *Sink) Order() sinks.Order { return s.lines.Order() }

// Limits are large batches, one at a time: each costs one fsync.
func (s *Sink) Limits() sinks.Limits {
	return sinks.Limits{Messages: 1000, Bytes: 8 << 20, Concurrency: 1}
}

// Lane is the same for all events.
func (s *Sink) Lane(context.Context, *event.Event) (string, error) { return "file", nil }

// Publish appends a line for each message, and waits until they are on the disk, or for ctx.
func (s *Sink) Publish(ctx context.Context, batch []*sinks.Message) { s.lines.Publish(ctx, batch) }

// DeadLetter appends the event with the reason and the attempts as attributes.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	return s.lines.DeadLetter(ctx, e, reason, attempts)
}

// explain sorts the errors of the file. None of them is about the message, so none is Refused.
func (s *Sink) explain(err error) error {
	switch {
	case errors.Is(err, os.ErrClosed):
		return &sinks.Error{Class: sinks.Reconnect, Err: fmt.Errorf("file %s: %w", s.path, err)}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("the disk of file %s is full; make "+
			"room, nothing is lost meanwhile: %w", s.path, err)}
	}
	return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("file %s: %w", s.path, err)}
}
