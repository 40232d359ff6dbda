package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/sinks"
)

// SampleOptions of Sample.
type SampleOptions struct {
	Config  *config.Config // its state and drain are changed
	Log     *slog.Logger
	Out     io.Writer
	Events  int           // how many events to print of each sink
	Timeout time.Duration // how long to wait for them
	JSON    bool          // one event per line, in CloudEvents' JSON format
}

// Sample prints the first events of a configuration as its sinks would send them, and sends none.
// It contacts no broker and has its state in memory. It ends when there were enough events of each
// sink, or when all that exists was shown and that was something. Else it ends at the timeout or
// the end of ctx. printed is how many events there were; all reports whether all that exists was
// shown.
func Sample(ctx context.Context, o SampleOptions) (printed int, all bool, err error) {
	o.Config.State.Mode, o.Config.ShutdownTimeout = "memory", time.Second
	for i := range o.Config.Sinks {
		// nothing is too large, and there is no place for payloads
		o.Config.Sinks[i].Oversize = []string{}
	}
	stream := newSampleStream(o.JSON, o.Events)
	a := &assembler{
		config: o.Config, log: o.Log,
		sink: func(_ string, s *config.Sink, _ prometheus.Registerer) (sinks.Sink, sinks.Service, error) {
			sink, err := newSampleSink(stream, s)
			return sink, nil, err
		},
	}
	p, err := a.assemble(ctx)
	if err != nil {
		return 0, false, startError(ctx, err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()

	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.bridge.Run(ctx) }()
	printed, all, printErr := stream.print(ctx, o.Out, o.Events*len(o.Config.Sinks),
		func() bool { return isShown(p.bridge.Status()) })
	stream.finish()
	cancel()
	switch err = <-ended; {
	case printErr != nil:
		return printed, all, printErr
	case isStop(err):
		return printed, all, nil
	}
	return printed, all, err
}

// isShown reports whether everything that was listed has been taken by all sinks.
func isShown(s bridge.Status) bool {
	for i := range s.Informers {
		u := &s.Informers[i]
		if u.Phase != string(informer.Gone) && (!u.Synced || u.QueuedDeltas > 0 || u.Unsettled > 0) {
			return false
		}
	}
	return len(s.Informers) > 0
}

// isStop reports whether a run that was asked to end did so for that reason alone.
func isStop(err error) bool {
	return err == nil || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bridge.ErrDrain)
}

// sampleStream brings the events of all sample sinks, as text, to the one who prints them.
type sampleStream struct {
	events   chan []byte
	json     bool
	most     int         // of each sink
	left     atomic.Bool // some were not printed, since their sink had enough
	finished chan struct{}
	once     sync.Once
}

func newSampleStream(json bool, most int) *sampleStream {
	return &sampleStream{
		events: make(chan []byte), json: json, most: most, finished: make(chan struct{}),
	}
}

// finish lets the sinks take whatever comes, so that the bridge can end.
func (s *sampleStream) finish() { s.once.Do(func() { close(s.finished) }) }

// print prints events until there are enough, there was one and all were shown, or ctx ends. It
// returns how many there were, and whether these were all.
func (s *sampleStream) print(
	ctx context.Context, w io.Writer, most int, isShown func() bool,
) (n int, all bool, err error) {
	const pause = 100 * time.Millisecond
	quiet := time.NewTimer(pause)
	defer quiet.Stop()
	for n < most {
		select {
		case text := <-s.events:
			if _, err := w.Write(text); err != nil {
				return n, false, err
			}
			n++
		case <-quiet.C: // since the last event
			if n > 0 && isShown() {
				return n, !s.left.Load(), nil
			}
		case <-ctx.Done():
			return n, false, nil
		}
		quiet.Reset(pause)
	}
	return n, false, nil
}

// text returns the event as it would be sent: the destination, headers, an empty line, and the
// message; or as the CloudEvents SDK writes it. What the SDK finds invalid is an error.
func (s *sampleSink) text(e *event.Event) ([]byte, error) {
	checked, err := e.CloudEvent()
	if err != nil {
		return nil, &sinks.Error{Class: sinks.Refused, Err: err}
	}
	if s.stream.json {
		document, err := event.MarshalCloudEvent(checked)
		return append(document, '\n'), err
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s\n", s.form.Destination(e))
	if mediaType := sinks.DocumentType(s.form.Encoding); mediaType != "" {
		fmt.Fprintf(&out, "content-type: %s\n\n", mediaType)
		out.Write(sinks.AppendDocument(nil, e, s.form.Encoding))
	} else {
		e.Each(func(name, value string) {
			if name == "datacontenttype" {
				name = "content-type"
			} else {
				name = s.form.Prefix + name
			}
			fmt.Fprintf(&out, "%s: %s\n", name, s.form.Value(value))
		})
		out.WriteByte('\n')
		out.Write(e.Data)
	}
	out.WriteString("\n\n")
	return out.Bytes(), nil
}

// sampleSink stands in for a sink: it knows the form of its events, and hands them to the stream.
type sampleSink struct {
	form    sinks.Form
	stream  *sampleStream
	printed int // owned by Publish
}

var _ sinks.Sink = (*sampleSink)(nil)

func newSampleSink(stream *sampleStream, c *config.Sink) (*sampleSink, error) {
	_, section := c.Section()
	form, err := section.Form(c.Common())
	return &sampleSink{form: form, stream: stream}, err
}

func (s *sampleSink) Open(context.Context) error { return nil }
func (s *sampleSink) Close() error               { return nil }
func (s *sampleSink) Order() sinks.Order         { return sinks.ByLane }

// Limits allow one call at a time, in small steps: the printer stops after a few events.
func (s *sampleSink) Limits() sinks.Limits { return sinks.Limits{Messages: 16, Concurrency: 1} }

func (s *sampleSink) Lane(context.Context, *event.Event) (string, error) { return "sample", nil }

// Publish hands the first messages to the printer, one by one and as text: an event belongs to the
// caller again when Publish returns.
func (s *sampleSink) Publish(ctx context.Context, batch []*sinks.Message) {
	for i, m := range batch {
		if m.Event.Op == event.Progress { // it says how far the stream is, and is no sample of it
			m.Err = nil
			continue
		}
		if s.printed == s.stream.most { // the other sinks have their turn
			s.stream.left.Store(true)
			m.Err = nil
			continue
		}
		text, err := s.text(m.Event)
		if m.Err = err; err != nil {
			continue
		}
		select {
		case s.stream.events <- text:
			s.printed++
		case <-s.stream.finished:
		case <-ctx.Done():
			sinks.Fail(batch[i:], ctx.Err())
			return
		}
	}
}

// DeadLetter is never called, as nothing is refused.
func (s *sampleSink) DeadLetter(context.Context, *event.Event, error, int) error {
	return sinks.ErrNoDeadLetter
}

// Schema describes what a configuration publishes, as an AsyncAPI document. It contacts nobody.
func Schema(c *config.Config) map[string]any {
	var list []asyncapi.Sink
	for i := range c.Sinks {
		s := &c.Sinks[i]
		_, section := s.Section()
		d := section.Describe()
		if d == nil {
			continue
		}
		d.Name = s.Name
		d.Structured = d.Structured || s.Encoding == sinks.Structured
		d.Flat = d.Flat || s.Encoding == sinks.Flat
		d.Oversize = d.Oversize && len(s.Oversize) > 0
		for j := range c.Informers {
			d.Streams = append(d.Streams, streamsOf(&c.Informers[j], s.Name)...)
		}
		for j := range d.Streams {
			d.Streams[j].Attributed = c.IsAttributed(s.Name)
		}
		if len(d.Streams) > 0 {
			list = append(list, *d)
		}
	}
	return asyncapi.Document(c.Cluster, list)
}

// streamsOf returns what an informer sends to a sink.
func streamsOf(inf *config.Informer, sink string) (list []asyncapi.Stream) {
	for i := range inf.Sinks {
		b := &inf.Sinks[i]
		if b.Name != sink {
			continue
		}
		stream := asyncapi.Stream{
			Informer: inf.Name, Payload: event.Payload(b.Payload), Types: event.Types(b.Types),
			Attributes: slices.Sorted(maps.Keys(inf.Attributes)), Owners: inf.Owners, Changed: inf.Changed,
		}
		for _, op := range []event.Op{event.Added, event.Updated, event.Deleted, event.Synced} {
			if allows(inf.Operations, op) && allows(b.Operations, op) {
				stream.Ops = append(stream.Ops, op)
			}
		}
		list = append(list, stream)
	}
	return list
}

func allows(operations []string, op event.Op) bool {
	return len(operations) == 0 || slices.Contains(operations, string(op))
}
