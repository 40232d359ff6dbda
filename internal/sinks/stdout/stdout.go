package stdout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sync/semaphore"
	"golang.org/x/term"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Values of Config.Format.
const (
	Auto  = "auto"  // Short on a terminal, JSON elsewhere
	JSON  = "json"  // one structured CloudEvent per line
	Short = "short" // one line for people per event
)

// Config of a Sink. Zero values mean the documented default.
type Config struct {
	// Writer gets the lines. Default os.Stdout. It is never closed.
	Writer io.Writer
	// Format is Auto (default), JSON or Short.
	Format string
}

// lane is the only one: a stream of lines has one order.
const lane = "stdout"

// Sink prints events. It implements sinks.Sink.
type Sink struct {
	out    io.Writer
	format func(dst []byte, e *event.Event) []byte

	busy *semaphore.Weighted // its holder writes, and owns the fields below
	buf  []byte
	owed torn
	left *writing // a write that a call did not wait for; nil for none
	// messages of such a write whose lines were taken to their end, and whose callers do not know
	taken map[string]struct{}
}

// torn is a line of which the writer took only the beginning.
type torn struct {
	id   string // of its message
	rest []byte // of the line, not written yet
}

var _ sinks.Sink = (*Sink)(nil)

// New checks the configuration.
func New(cfg Config) (*Sink, error) {
	if cfg.Writer == nil {
		cfg.Writer = os.Stdout
	}
	s := &Sink{out: cfg.Writer, busy: semaphore.NewWeighted(1), taken: map[string]struct{}{}}
	terminal := isTerminal(cfg.Writer)
	switch {
	case cfg.Format == JSON, (cfg.Format == Auto || cfg.Format == "") && !terminal:
		s.format = appendJSONLine
	case cfg.Format == Short, cfg.Format == Auto, cfg.Format == "":
		s.format = shortFormat{colour: terminal && wantsColour()}.appendLine
	default:
		return nil, fmt.Errorf("stdout sink: format %q: want one of auto, json, short", cfg.Format)
	}
	return s, nil
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// wantsColour follows no-color.org.
func wantsColour() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Open does nothing.
func (s *Sink) Open(context.Context) error { return nil }

// Close does nothing: the writer is the caller's.
func (s *Sink) Close() error { return nil }

// Order is ByLane: lines come in the order given.
func (s *Sink) Order() sinks.Order { return sinks.ByLane }

// Limits are the defaults, but for one call at a time.
func (s *Sink) Limits() sinks.Limits { return sinks.Limits{Concurrency: 1} }

// Lane is the same for all events.
func (s *Sink) Lane(context.Context, *event.Event) (string, error) { return lane, nil }

// Publish writes a line for each message, and waits for the writer or for ctx. A writer can't be
// interrupted: what it was given when ctx ended stays with it, and the next call begins when it is
// done with that; lines that it has taken by then are not written again.
func (s *Sink) Publish(ctx context.Context, batch []*sinks.Message) {
	if len(batch) == 0 {
		return
	}
	if err := s.acquire(ctx); err != nil {
		sinks.Fail(batch, err)
		return
	}
	defer s.release()
	sinks.Fail(batch, nil)
	if !s.finish(ctx) {
		sinks.Fail(batch, stopped(ctx))
		return
	}
	if batch = s.untaken(batch); len(batch) > 0 {
		s.write(ctx, batch)
	}
}

// DeadLetter writes the event with the reason and the attempts as attributes.
func (s *Sink) DeadLetter(ctx context.Context, e *event.Event, reason error, attempts int) error {
	dead := *e
	dead.Extensions = append(slices.Clip(e.Extensions),
		event.Attribute{Name: "deadletterreason", Value: printable(reason.Error())},
		event.Attribute{Name: "deadletterattempts", Value: strconv.Itoa(attempts)})
	m := &sinks.Message{Event: &dead}
	s.Publish(ctx, []*sinks.Message{m})
	return m.Err
}

func (s *Sink) acquire(ctx context.Context) error {
	if s.busy.Acquire(ctx, 1) != nil {
		return stopped(ctx)
	}
	return nil
}

func stopped(ctx context.Context) error {
	return &sinks.Error{Class: sinks.Stopped, Err: ctx.Err()}
}

// release lets the next call write, without the memory of one huge batch.
func (s *Sink) release() {
	const large = 4 << 20
	if cap(s.buf) > large {
		s.buf = nil
	}
	s.busy.Release(1)
}

// lineID distinguishes one line from another: a dead letter has the id of its event, and another
// line.
func lineID(e *event.Event) string {
	return e.MessageID() + "/" + strconv.Itoa(len(e.Extensions))
}

// explain sorts the errors of a writer. None of them is about the message, so none is Refused.
func explain(err error) error {
	switch {
	case err == nil:
		err = io.ErrShortWrite
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, os.ErrClosed):
		return &sinks.Error{
			Class: sinks.Reconnect,
			Err: fmt.Errorf("standard output: whoever read it has gone; restart the bridge with "+
				"a reader: %w", err),
		}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("standard output goes to a full "+
			"disk; make room, nothing is lost meanwhile: %w", err)}
	}
	return &sinks.Error{Class: sinks.Retry, Err: fmt.Errorf("standard output: %w", err)}
}
