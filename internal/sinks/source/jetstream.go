package source

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// streamReader reads streams, one behind the other.
type streamReader struct {
	patience time.Duration
	subject  string   // "" for all
	lanes    []string // nil for all
	raw      bool
	conn     *natsgo.Conn
	js       jetstream.JetStream
	pattern  string
	names    []string
	position Position
	progress Progress
	whole    bool
	removed  []Removal
	asked    time.Time // when a jump was last looked into
	// sparse are the streams that remove single messages by themselves.
	sparse map[string]bool
}

// dialNATS connects to servers with commas between them.
func dialNATS(
	ctx context.Context, cfg Config, scheme, hosts string,
) (*natsgo.Conn, jetstream.JetStream, error) {
	var servers []settings.URL
	for host := range strings.SplitSeq(hosts, ",") {
		servers = append(servers, settings.URL(scheme+"://"+host))
	}
	o := nats.Options{Config: cfg.NATS, Client: cfg.Client}
	o.Servers = servers
	conn, err := nats.Connect(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	js, err := nats.API(conn, &o.Config)
	if err != nil {
		conn.Close()
	}
	return conn, js, err
}

func openNATS(ctx context.Context, cfg Config, scheme, hosts, name string) (Reader, error) {
	conn, js, err := dialNATS(ctx, cfg, scheme, hosts)
	if err != nil {
		return nil, err
	}
	r := &streamReader{
		patience: cfg.Patience, subject: cfg.Subject, lanes: cfg.Lanes, raw: cfg.Raw, conn: conn, js: js,
		pattern: name, position: clone(cfg.After), whole: true, sparse: map[string]bool{},
	}
	if r.names, err = r.streams(ctx, name); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func clone(p Position) Position {
	if p == nil {
		return Position{}
	}
	return maps.Clone(p)
}

// streams are those of a name, of a pattern, or where that is "" those that store the subject.
func (r *streamReader) streams(ctx context.Context, pattern string) (names []string, err error) {
	if pattern != "" && !strings.Contains(pattern, "*") {
		return []string{pattern}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	var options []jetstream.StreamListOpt
	missing := "no stream is called " + pattern
	if pattern == "" {
		options = append(options, jetstream.WithStreamListSubject(r.subject))
		missing = "no stream stores the subject " + r.subject
	}
	lister := r.js.StreamNames(ctx, options...)
	for name := range lister.Name() {
		if pattern == "" || matches(pattern, name) {
			names = append(names, name)
		}
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("ask for the streams: %w", r.explain(err))
	}
	if len(names) == 0 {
		return nil, errors.New(missing)
	}
	slices.Sort(names)
	return names, nil
}

func (r *streamReader) Close() { r.conn.Close() }

func (r *streamReader) Whole() bool { return r.whole }

func (r *streamReader) Sparse(context.Context) (bool, error) {
	for _, isSparse := range r.sparse {
		if isSparse {
			return true, nil
		}
	}
	return false, nil
}

func (r *streamReader) Removed() []Removal { return r.removed }

func (r *streamReader) Position() Position { return r.position }

func (r *streamReader) Progress() Progress { return r.progress }

// extent is what is to be read of a stream.
type extent struct {
	name        string
	created     time.Time
	first, last uint64
}

func (r *streamReader) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		extents, err := r.extents(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, x := range extents {
			if !r.stream(ctx, x, yield) {
				return
			}
		}
	}
}

// extents asks where the streams begin and end.
func (r *streamReader) extents(ctx context.Context) (list []extent, err error) {
	r.progress = Progress{}
	if r.pattern == "" || strings.Contains(r.pattern, "*") { // some are made with their first event
		names, err := r.streams(ctx, r.pattern)
		if err != nil {
			return nil, err
		}
		r.names = union(r.names, names)
	}
	for _, name := range r.names {
		if r.lanes != nil && !slices.Contains(r.lanes, name) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, r.patience)
		stream, err := r.js.Stream(limited, name)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", name, r.explain(err))
		}
		info := stream.CachedInfo()
		at := r.position[name]
		if !at.Created.IsZero() && !at.Created.Equal(info.Created) {
			return nil, &RecreatedError{name, fmt.Errorf("stream %s: %w", name, ErrOther)}
		}
		if at.Next > info.State.LastSeq+1 { // the server has lost the end: it gives its sequences again
			err := fmt.Errorf("stream %s ends at %d: %w", name, info.State.LastSeq, ErrOther)
			return nil, &RecreatedError{name, err}
		}
		r.sparse[name] = removesSingly(&info.Config)
		isKept := !r.sparse[name] && !hasLimits(&info.Config)
		if at.Next == 0 {
			r.whole = r.whole && info.State.FirstSeq <= 1
		}
		if begins := max(at.Next, 1); info.State.FirstSeq > begins && (at.Next > 0 || isKept) {
			r.removed = append(r.removed, Removal{name, begins, info.State.FirstSeq, isKept})
		}
		x := extent{name, info.Created, max(at.Next, info.State.FirstSeq, 1), info.State.LastSeq}
		r.position[name] = Lane{Next: x.first, Created: info.Created}
		if info.State.Msgs > 0 && x.first <= x.last {
			r.progress.Total += x.last - x.first + 1
			list = append(list, x)
		}
	}
	return list, nil
}

// removesSingly reports whether a stream removes messages that are not its oldest ones.
func removesSingly(c *jetstream.StreamConfig) bool {
	return c.MaxMsgsPerSubject > 0 || c.AllowMsgTTL || c.AllowRollup ||
		c.Retention != jetstream.LimitsPolicy
}

// hasLimits reports whether a stream removes its oldest messages.
func hasLimits(c *jetstream.StreamConfig) bool {
	return c.MaxAge > 0 || c.MaxMsgs > 0 || c.MaxBytes > 0
}

// mostBuffered is how many bytes of messages wait at most, unless two of them may have more.
const mostBuffered = 8 << 20

// stream reads one stream. It reports whether to continue.
func (r *streamReader) stream(ctx context.Context, x extent, yield func(*Message, error) bool) bool {
	failed := func(err error) bool {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		yield(nil, fmt.Errorf("stream %s, behind message %d of %d: %w", x.name, r.position[x.name].Next-1,
			x.last, r.explain(err)))
		return false
	}
	limited, cancel := context.WithTimeout(ctx, r.patience)
	cfg := jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: x.first,
		InactiveThreshold: r.patience,
	}
	if r.subject != "" {
		cfg.FilterSubjects = []string{r.subject}
	}
	consumer, err := r.js.OrderedConsumer(limited, x.name, cfg)
	cancel()
	if err != nil {
		return failed(err)
	}
	if consumer.CachedInfo().NumPending == 0 { // what is left of the stream ends before here
		if r.subject == "" {
			r.jumped(ctx, x.name, x.first, x.last+1)
		}
		return true
	}
	messages, err := consumer.Messages(jetstream.PullMaxBytes(max(mostBuffered, 2*int(r.conn.MaxPayload()))))
	if err != nil {
		return failed(err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	m := new(Message)
	for {
		raw, err := messages.Next(jetstream.NextMaxWait(r.patience))
		if err != nil {
			return failed(err)
		}
		meta, err := raw.Metadata()
		if err != nil {
			return failed(err)
		}
		at := meta.Sequence.Stream
		if at > x.last {
			if r.subject == "" {
				r.jumped(ctx, x.name, r.position[x.name].Next, x.last+1)
			}
			return true
		}
		if expected := r.position[x.name].Next; at > expected && r.subject == "" {
			r.jumped(ctx, x.name, expected, at)
		}
		m.read(raw, x.name, meta, r.raw)
		r.progress.Read += at - r.position[x.name].Next + 1
		r.position[x.name] = Lane{Next: at + 1, Created: x.created}
		if !yield(m, nil) {
			return false
		}
		if at == x.last || meta.NumPending == 0 {
			if at < x.last && r.subject == "" {
				r.jumped(ctx, x.name, at+1, x.last+1)
			}
			return true
		}
	}
}

// jumped notes a stretch that the stream does not have. Where the stream begins before it, its
// limits have not removed it, but somebody has; unless the stream is one in which single messages
// are removed all the time. Of such a stream it asks once a second at most.
func (r *streamReader) jumped(ctx context.Context, name string, expected, at uint64) {
	if r.sparse[name] && time.Since(r.asked) < time.Second {
		return
	}
	r.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	stream, err := r.js.Stream(ctx, name)
	if err != nil {
		return
	}
	isByLimits := stream.CachedInfo().State.FirstSeq > expected
	if isByLimits || !r.sparse[name] {
		r.removed = append(r.removed, Removal{name, expected, at, !isByLimits})
	}
}

// explain says why nothing comes.
func (r *streamReader) explain(err error) error {
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return errors.New("there is none of this name, or the user may not see it")
	case errors.Is(err, natsgo.ErrTimeout), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, jetstream.ErrMsgIteratorClosed):
		if last := r.conn.LastError(); last != nil {
			return fmt.Errorf("%w (%w)", err, last)
		}
		if !r.conn.IsConnected() {
			return fmt.Errorf("the connection to the server is lost (%w)", err)
		}
	}
	return err
}

const (
	fenceToken = "._fence."
	// deadLetterInfix is before the name of the sink in the Nats-Msg-Id of a dead letter.
	deadLetterInfix = "/dead/"
)

// read makes an event of a message, or says what else it is.
func (m *Message) read(raw jetstream.Msg, stream string, meta *jetstream.MsgMetadata, isRaw bool) {
	*m = Message{
		Lane: stream, Offset: meta.Sequence.Stream, Stored: meta.Timestamp, Data: raw.Data(), message: m.message,
	}
	if isRaw {
		return
	}
	id := raw.Headers().Get(natsgo.MsgIdHdr)
	if at := strings.LastIndex(id, deadLetterInfix); at >= 0 {
		m.Sink, _, _ = strings.Cut(id[at+len(deadLetterInfix):], "/")
	}
	if strings.Contains(raw.Subject(), fenceToken) {
		m.Other = "fence"
		return
	}
	if m.Event, m.Err = m.message.ReadNATS(raw.Headers(), raw.Data()).Decode(); m.Err != nil {
		m.Other = "message on " + raw.Subject()
	}
}
