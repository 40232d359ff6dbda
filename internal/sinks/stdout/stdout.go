// Package stdout is the sink that prints events: one JSON document per line for programs, or one
// short coloured line per event for people in front of a terminal.
//
// It takes events from a publisher and hands on lines, in the order given: all events are one lane
// (sinks.ByLane). An acknowledged event has been taken by the writer as a whole line; whether the
// other end of a pipe has read it is not known. A line that the writer took half of is completed
// before anything else is written, so lines are never mixed or torn.
//
// Publish blocks until the writer has taken the lines, or its context ends: then the write
// continues without it, in the goroutine that each call starts for its write, and what it takes is
// not written again. Whoever stops reading so holds up the events, and not the end of the bridge.
// The writer is never closed.
package stdout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sync/semaphore"
	"golang.org/x/term"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Config is the section `stdout` of a sink.
//
// Stdout prints a line per event on standard output.
type Config struct {
	// Format is `json`: structured CloudEvents; `flat`: flat records, as with `encoding: flat` of
	// other sinks; `short`: lines for people; or `auto`: short on a terminal and JSON elsewhere.
	Format string `yaml:"format" default:"auto" oneof:"auto json flat short"`
}

var _ interface {
	sinks.Section
	sinks.OwnEncoder
} = (*Config)(nil)

// Values of Config.Format.
const (
	Auto  = "auto"  // Short on a terminal, JSON elsewhere
	JSON  = "json"  // one structured CloudEvent per line
	Flat  = "flat"  // one flat record per line
	Short = "short" // one line for people per event
)

// Validate finds nothing: the format is one of those in its tag.
func (*Config) Validate(*settings.Report, string) {}

// OwnEncoding is that of the format.
func (*Config) OwnEncoding() string { return "stdout, which has its format" }

// New makes the sink.
func (c *Config) New(_ sinks.Common, env *sinks.Env) (sinks.Sink, sinks.Service, error) {
	out := env.Out
	if out == nil {
		out = os.Stdout
	}
	sink, err := New(out, c.Format)
	return sink, nil, err
}

// Places is one.
func (*Config) Places() []string { return []string{"standard output"} }

// Form is that of a line for programs.
func (c *Config) Form(common sinks.Common) (sinks.Form, error) {
	return sinks.Form{
		Encoding:    EncodingOf(c.Format),
		Destination: func(*event.Event) string { return "sink " + common.Name + ": standard output" },
	}, nil
}

// EncodingOf returns the encoding of the lines of a format.
func EncodingOf(format string) string {
	if format == Flat {
		return sinks.Flat
	}
	return sinks.Structured
}

// Describe says what a line is.
func (c *Config) Describe() *asyncapi.Sink {
	return &asyncapi.Sink{Structured: c.Format != Flat, Flat: c.Format == Flat}
}

// lane is the only one: a stream of lines has one order.
const lane = "stdout"

// Sink prints events. It implements sinks.Sink.
type Sink struct {
	out     io.Writer
	format  func(dst []byte, e *event.Event) []byte
	explain func(error) error

	busy *semaphore.Weighted // its holder writes, and owns the fields below
	buf  []byte
	owed partialLine
	left *pendingWrite // a write that a call did not wait for; nil for none
	// messages of such a write whose lines were taken to their end, and whose callers do not know
	taken map[string]struct{}
}

// partialLine is a line of which the writer took only the beginning.
type partialLine struct {
	id   string // of its message
	rest []byte // of the line, not written yet
}

var _ sinks.Sink = (*Sink)(nil)

// New returns a sink that writes lines of a format to out, which it never closes.
func New(out io.Writer, format string) (*Sink, error) { return NewLines(out, format, explain) }

// NewLines is New for another writer than standard output. explain sorts its errors; it gets nil
// for a write that was too short.
func NewLines(out io.Writer, format string, explain func(error) error) (*Sink, error) {
	s := &Sink{
		out: out, explain: explain, busy: semaphore.NewWeighted(1), taken: map[string]struct{}{},
	}
	terminal := isTerminal(out)
	switch {
	case format == JSON, format == Flat, format == Auto && !terminal:
		s.format = lineFormat(EncodingOf(format)).appendLine
	case format == Short, format == Auto:
		s.format = shortFormat{colour: terminal && wantsColour()}.appendLine
	default:
		return nil, fmt.Errorf("stdout sink: format %q: want one of auto, json, flat, short", format)
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

// pendingWrite is one write, which continues when nobody waits for it any more.
type pendingWrite struct {
	buf  []byte
	owed partialLine // what buf begins with
	ends []int       // where each message's line ends in buf
	// of the messages, by lineID; set when nobody waits any more, since events are the caller's
	ids  []string
	done chan struct{}

	// Set before done is closed.
	written int
	err     error
}

// write renders all lines into one buffer and writes them at once. Lines that the writer took to
// their end are acknowledged.
func (s *Sink) write(ctx context.Context, batch []*sinks.Message) {
	w := s.render(batch)
	go func() {
		defer close(w.done)
		w.written, w.err = s.out.Write(w.buf)
	}()
	if !w.wait(ctx) {
		for _, m := range batch {
			w.ids = append(w.ids, lineID(m.Event))
		}
		s.left = w
		sinks.Fail(batch, stopped(ctx))
		return
	}
	s.conclude(w, func(i int) string { return lineID(batch[i].Event) })
	for i, m := range batch {
		if m.Err == nil && w.ends[i] > w.written {
			m.Err = s.explain(w.err)
		}
	}
}

func (s *Sink) render(batch []*sinks.Message) *pendingWrite {
	w := &pendingWrite{owed: s.owed, ends: make([]int, len(batch)), done: make(chan struct{})}
	w.buf = append(s.buf[:0], s.owed.rest...)
	for i, m := range batch {
		// A message that is resent because its line was torn needs the rest of the line, and no
		// second one.
		if i > 0 || s.owed.rest == nil || s.owed.id != lineID(m.Event) {
			w.buf, m.Err = s.tryFormat(w.buf, m.Event)
		}
		w.ends[i] = len(w.buf)
	}
	s.buf = nil // the writer has it
	return w
}

// tryFormat appends the line of an event. A panic refuses the event, which has no line then.
func (s *Sink) tryFormat(buf []byte, e *event.Event) (out []byte, err error) {
	out = buf
	defer sinks.Recover(&err)
	return s.format(buf, e), nil
}

// wait is false when ctx ended before the write did.
func (w *pendingWrite) wait(ctx context.Context) bool {
	select {
	case <-w.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// conclude notes what a write that is done has left. id is of a message of it.
func (s *Sink) conclude(w *pendingWrite, id func(i int) string) {
	s.buf, s.owed = w.buf, w.torn(id)
}

// finish waits for a write that an earlier call has left, and notes what became of it. It is false
// when ctx ended before.
func (s *Sink) finish(ctx context.Context) bool {
	w := s.left
	if w == nil {
		return true
	}
	if !w.wait(ctx) {
		return false
	}
	s.left = nil
	s.conclude(w, func(i int) string { return w.ids[i] })
	for i, id := range w.ids {
		if w.ends[i] <= w.written {
			s.taken[id] = struct{}{}
		}
	}
	return true
}

// torn is the line that was taken in part.
func (w *pendingWrite) torn(id func(i int) string) partialLine {
	if w.written < len(w.owed.rest) {
		return partialLine{w.owed.id, slices.Clone(w.owed.rest[w.written:])}
	}
	begin := len(w.owed.rest)
	for i, end := range w.ends {
		if begin < w.written && w.written < end {
			return partialLine{id(i), slices.Clone(w.buf[w.written:end])}
		}
		begin = end
	}
	return partialLine{}
}

// untaken gives the messages whose lines were not taken by a write that nobody waited for.
func (s *Sink) untaken(batch []*sinks.Message) (rest []*sinks.Message) {
	if len(s.taken) == 0 {
		return batch
	}
	for _, m := range batch {
		id := lineID(m.Event)
		if _, ok := s.taken[id]; !ok {
			rest = append(rest, m)
		}
		delete(s.taken, id)
	}
	return rest
}

// lineFormat is an encoding whose documents are lines.
type lineFormat string

// appendLine appends an event. A payload may hold line breaks between its JSON tokens, and nowhere
// else: as spaces they mean the same, and the event stays one line.
func (f lineFormat) appendLine(dst []byte, e *event.Event) []byte {
	begin := len(dst)
	dst = sinks.AppendDocument(dst, e, string(f))
	for i := begin; i < len(dst); i++ {
		if dst[i] == '\n' || dst[i] == '\r' {
			dst[i] = ' '
		}
	}
	return append(dst, '\n')
}

// shortFormat is a line for people: time, op, resource, object, who, version.
type shortFormat struct{ colour bool }

// ANSI colours.
const (
	reset   = "\x1b[0m"
	dim     = "\x1b[2m"
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
)

var opColours = map[event.Op]string{
	event.Added: green, event.Updated: yellow, event.Deleted: red, event.Synced: cyan,
	event.Gap: magenta,
}

func (f shortFormat) appendLine(dst []byte, e *event.Event) []byte {
	dst = f.paint(dst, dim, e.Time.Local().Format("15:04:05.000"))
	dst = append(dst, ' ')
	dst = f.paint(dst, opColours[e.Op], pad(string(e.Op), len(event.Updated)))
	dst = append(dst, ' ')
	dst = append(dst, printable(what(e))...)
	dst = append(dst, ' ')
	dst = append(dst, printable(who(e))...)
	if e.Manager != "" {
		dst = f.paint(append(dst, ' '), dim, "by "+printable(e.Manager))
	}
	if e.ResourceVersion != "" {
		dst = f.paint(append(dst, ' '), dim, "@"+printable(e.ResourceVersion))
	}
	for _, note := range notes(e) {
		dst = append(dst, ' ')
		dst = f.paint(dst, magenta, printable(note))
	}
	return append(dst, '\n')
}

func (f shortFormat) paint(dst []byte, colour, text string) []byte {
	if !f.colour || colour == "" {
		return append(dst, text...)
	}
	dst = append(dst, colour...)
	dst = append(dst, text...)
	return append(dst, reset...)
}

// what is the kind of thing: "deployments.apps", or "informer" for events about one.
func what(e *event.Event) string {
	switch {
	case e.Resource == "":
		return "informer"
	case e.Group == "":
		return e.Resource
	default:
		return e.Resource + "." + e.Group
	}
}

func who(e *event.Event) string {
	switch {
	case e.Resource == "":
		return e.Informer
	case e.Namespace == "":
		return e.Name
	default:
		return e.Namespace + "/" + e.Name
	}
}

// notes are what does not hold for most events: flags, the cause, the data of an event about an
// informer, a dead letter's reason.
func notes(e *event.Event) (notes []string) {
	if e.Initial {
		notes = append(notes, "initial")
	}
	if e.Inferred {
		notes = append(notes, "inferred")
	}
	if e.Cause != "" {
		notes = append(notes, e.Cause)
	}
	if e.Resource == "" && len(e.Data) > 0 {
		notes = append(notes, string(e.Data))
	}
	for _, a := range e.Extensions {
		notes = append(notes, a.Name+"="+cmp.Or(a.Value, `""`))
	}
	return notes
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-len(text)))
}

// printable keeps control characters away from the terminal: a name or a manager may come from
// anyone.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || 0x7f <= r && r <= 0x9f {
			return '?'
		}
		return r
	}, text)
}
