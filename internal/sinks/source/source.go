package source

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// Message is one message of a source. It is valid until the next one.
type Message struct {
	// Event is the message as an event, when Other is empty. It may still be none of the bridge's:
	// then its Op is empty.
	Event event.Event
	// Other names what the message is when it is no event: "fence", "tombstone".
	Other string
	// Err is why the message can't be read as an event; nil for an event, a fence and a tombstone.
	Err error
	// Damaged is set for a batch of Kafka that can't be read: it may hold any number of events.
	Damaged bool
	// Lane is what is in order, and Offset the place in it.
	Lane   string
	Offset uint64
	// Stored is when the broker stored the message; zero for a file.
	Stored time.Time
	// Key is the record's, of Kafka.
	Key []byte
	// Data is what the message holds. With Config.Raw nothing is made of it.
	Data []byte
	// Sink is the name of the sink that has sent the message, where the message has it: a record,
	// and a dead letter.
	Sink string

	message event.Message
}

// CloudEvent returns the message as the CloudEvents SDK reads it. Event is the same, as fields.
func (m *Message) CloudEvent() (*cloudevents.Event, error) { return m.message.CloudEvent() }

// Lane is how far one lane is read.
type Lane struct {
	// Next is the offset of the first message that was not read.
	Next uint64 `json:"next"`
	// Created is when the stream was created; zero where that is not known.
	Created time.Time `json:"created,omitzero"`
	// Stored is the time of the record before Next; zero where that is not known, as for a stream.
	Stored time.Time `json:"stored,omitzero"`
}

// Position is how far a source is read, by lane. Its JSON may be stored.
type Position map[string]Lane

// Progress is how much was read of what is to be read. Total is 0 where it is not known.
type Progress struct{ Read, Total uint64 }

// Removal is a stretch of a lane that is missing: from an offset up to the one before another.
type Removal struct {
	Lane string `json:"lane"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	// Singly: no limit of the source has removed them. Somebody has.
	Singly bool `json:"singly,omitempty"`
}

// Reader reads one source.
type Reader interface {
	// Messages are those behind the position, up to the end that the source has when the iteration
	// begins. The error is the last element.
	Messages(ctx context.Context) iter.Seq2[*Message, error]
	// Position is behind the last message that Messages has given.
	Position() Position
	// Progress of the current or last iteration.
	Progress() Progress
	// Removed are the messages behind a position, or between two messages, that were removed before
	// they could be read, since the Reader was opened.
	Removed() []Removal
	// Whole reports whether the source still has everything from its first message on. It is known
	// once Messages has begun.
	Whole() bool
	// Sparse reports whether the source removes messages by itself that are not its oldest ones, or
	// may do so. It is known once Messages has begun.
	Sparse(ctx context.Context) (bool, error)
	Close()
}

// ErrOther is the error for a source that is not the one of the Position: it was recreated. It
// comes in a RecreatedError.
var ErrOther = errors.New("the source was recreated since the position was saved")

// RecreatedError says which stream or topic was recreated.
type RecreatedError struct {
	Name string
	Err  error // ErrOther, and how that shows
}

func (e *RecreatedError) Error() string { return e.Err.Error() }

func (e *RecreatedError) Unwrap() error { return e.Err }

// Has reports whether a lane is one of what was recreated.
func (e *RecreatedError) Has(lane string) bool {
	topic, _, _ := strings.Cut(lane, "/")
	return topic == e.Name
}

// union returns the names of both lists, sorted, each once.
func union(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Config of a Reader.
type Config struct {
	// From is where to read: nats://host:4222/STREAM, kafka://host:9092/topic, or the path of a
	// file, "-" for Stdin.
	From string
	// NATS and Kafka have what is needed to connect; From has the servers. Client is the name that
	// NATS shows, as Kafka.ClientID is.
	NATS   nats.Config
	Kafka  kafka.Connection
	Client string
	Stdin  Input
	// Subject is what is read of a stream, "" for all of it; it may have wildcards. Where From
	// names no stream, it is the streams that store the subject.
	Subject string
	// Lanes are those that are read; nil for all.
	Lanes []string
	// Raw reads no message as an event: something else than a bridge has sent them.
	Raw bool
	// After is where to continue; nil to read from the start.
	After Position
	// Patience is how long to wait for a message; default 30 s.
	Patience time.Duration
}

const defaultPatience = 30 * time.Second

// Schemes are those of brokers in Config.From. Anything else is the path of a file.
var (
	natsSchemes  = []string{"nats", "tls", "ws", "wss"}
	kafkaSchemes = []string{"kafka"}
)

// Open connects to a source.
func Open(ctx context.Context, cfg Config) (Reader, error) {
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	scheme, rest, found := strings.Cut(cfg.From, "://")
	switch {
	case !found:
		return openFile(cfg, cfg.From)
	case scheme == "file":
		return openFile(cfg, rest)
	}
	hosts, name, _ := strings.Cut(rest, "/")
	if hosts == "" {
		return nil, fmt.Errorf("%s: want %s://host/name", cfg.From, scheme)
	}
	switch {
	case slices.Contains(natsSchemes, scheme):
		if name == "" && cfg.Subject == "" {
			return nil, fmt.Errorf("%s://%s: want the name of a stream behind the host, as %s://host/K8S",
				scheme, withoutUser(hosts), scheme)
		}
		return openNATS(ctx, cfg, scheme, hosts, name)
	case slices.Contains(kafkaSchemes, scheme):
		if name == "" {
			return nil, fmt.Errorf("kafka://%s: want the name of a topic behind the host, as "+
				"kafka://host/k8s.prod.pods, or a pattern of several, as k8s.prod.*", hosts)
		}
		return openKafka(ctx, cfg, hosts, name)
	}
	return nil, fmt.Errorf("%s: want nats://host/STREAM, kafka://host/topic or the path of a file",
		scheme+"://"+withoutUser(rest))
}

// withoutUser takes credentials out of what an error shows.
func withoutUser(hosts string) string {
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		return "…@" + hosts[at+1:]
	}
	return hosts
}

// matches reports whether a name matches a pattern with any number of *.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, ok := strings.CutPrefix(name, parts[0])
	for _, part := range parts[1 : len(parts)-1] {
		if !ok {
			return false
		}
		_, rest, ok = strings.Cut(rest, part)
	}
	return ok && strings.HasSuffix(rest, parts[len(parts)-1])
}

// MessageAddress is a message in its lane.
type MessageAddress struct {
	Lane   string
	Offset uint64
}

// Delete deletes messages of streams. One that is gone already is no error. Config.From is
// the address of NATS servers.
func Delete(ctx context.Context, cfg Config, places []MessageAddress) error {
	scheme, rest, _ := strings.Cut(cfg.From, "://")
	hosts, _, _ := strings.Cut(rest, "/")
	conn, js, err := dialNATS(ctx, cfg, scheme, hosts)
	if err != nil {
		return err
	}
	defer conn.Close()
	streams := map[string]jetstream.Stream{}
	for _, at := range places {
		if err := deleteMessage(ctx, js, streams, at); err != nil {
			if last := conn.LastError(); last != nil {
				err = last // the lack of a right, which the server answers with silence
			}
			return fmt.Errorf("delete message %d of stream %s: %w", at.Offset, at.Lane, err)
		}
	}
	return nil
}

// deleteMessage deletes one. streams are those that were asked for before.
func deleteMessage(
	ctx context.Context, js jetstream.JetStream, streams map[string]jetstream.Stream, at MessageAddress,
) error {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, ok := streams[at.Lane]
	if !ok {
		var err error
		if stream, err = js.Stream(ctx, at.Lane); err != nil {
			return err
		}
		streams[at.Lane] = stream
	}
	err := stream.DeleteMsg(ctx, at.Offset)
	// "no message found", "sequence 7 not found": the client gives the server's text alone
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) && strings.Contains(err.Error(), "found") {
		return nil
	}
	return err
}

// Input is what "-" reads.
type Input = io.Reader

// fileReader reads JSON documents from a file, one behind the other or in an array.
type fileReader struct {
	path    string
	file    *os.File // nil for standard input
	size    int64    // 0 where it is not known
	counted *countingReader
	in      *jsontext.Decoder
	skip    uint64 // documents that a reader before has read
	read    uint64
}

// countingReader counts what is read of the file itself, for the progress.
type countingReader struct {
	io.Reader
	n int64
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.n += int64(n)
	return n, err
}

// openFile opens a file, also one that gzip has compressed.
func openFile(cfg Config, path string) (Reader, error) {
	r := &fileReader{
		path: path, counted: &countingReader{Reader: cfg.Stdin},
		skip: cfg.After[path].Next,
	}
	if path == "-" {
		r.path = "standard input"
		if cfg.Stdin == nil {
			return nil, errors.New("there is no standard input")
		}
	} else {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			r.size = info.Size()
		}
		r.file, r.counted.Reader = file, file
	}
	buffered := bufio.NewReaderSize(r.counted, 256<<10)
	in := io.Reader(buffered)
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("%s: %w", r.path, err)
		}
		in = unzipped
	}
	r.in = jsontext.NewDecoder(in, jsontext.AllowDuplicateNames(true))
	return r, nil
}

func (r *fileReader) Close() {
	if r.file != nil {
		_ = r.file.Close() // it was only read
	}
}

func (r *fileReader) Whole() bool { return true }

func (r *fileReader) Sparse(context.Context) (bool, error) { return false, nil }

func (r *fileReader) Removed() []Removal { return nil }

func (r *fileReader) Position() Position { return Position{r.path: {Next: r.read}} }

func (r *fileReader) Progress() Progress {
	return Progress{uint64(r.counted.n), uint64(r.size)}
}

func (r *fileReader) Messages(ctx context.Context) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		m := new(Message)
		for ctx.Err() == nil {
			document, err := r.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			r.read++
			if r.read <= r.skip {
				continue
			}
			*m = Message{Lane: r.path, Offset: r.read, Data: document, message: m.message}
			if m.Event, m.Err = m.message.ReadDocument(document).Decode(); m.Err != nil {
				m.Other = "JSON that is no CloudEvent"
			}
			if !yield(m, nil) {
				return
			}
		}
		yield(nil, context.Cause(ctx))
	}
}

// next is the next document. An array at the top is a batch.
func (r *fileReader) next() ([]byte, error) {
	for r.atBracket() {
		if _, err := r.in.ReadToken(); err != nil {
			return nil, r.wrong(err)
		}
	}
	value, err := r.in.ReadValue()
	if err != nil {
		return nil, r.wrong(err)
	}
	return value, nil
}

// atBracket reports whether a batch begins or ends. An array in a batch is a document.
func (r *fileReader) atBracket() bool {
	kind := r.in.PeekKind()
	return kind == ']' || kind == '[' && r.in.StackDepth() == 0
}

// wrong says where the file can't be read on. io.EOF is its end.
func (r *fileReader) wrong(err error) error {
	switch {
	case err == io.EOF && r.in.StackDepth() == 0: //nolint:errorlint // a wrapped one is in the midst
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%s ends in the midst of a document, behind %d that are whole: it is truncated",
			r.path, r.read)
	}
	return fmt.Errorf("%s: behind %d documents: %w", r.path, r.read, err)
}

// UseNATS makes the reader connect as a sink does. Where From is empty, it becomes the address of
// the sink's streams. stateDir is the bridge's.
func (c *Config) UseNATS(n *nats.Config, cluster, stateDir string) error {
	loaded, err := n.Load(stateDir)
	if err != nil {
		return err
	}
	if c.NATS = loaded; c.From != "" {
		return nil
	}
	scheme := "nats"
	var hosts []string
	for _, server := range n.Servers {
		address, err := url.Parse(string(server))
		if err != nil {
			return errors.New("servers: not a URL") // without the parser's error, which repeats it
		}
		host := address.Host
		if address.User != nil {
			host = address.User.String() + "@" + host
		}
		scheme, hosts = address.Scheme, append(hosts, host)
	}
	stream, err := Pattern(n.Stream.Name, cluster, event.AppendSubjectToken)
	c.From = scheme + "://" + strings.Join(hosts, ",") + "/" + stream
	return err
}

// UseKafka makes the reader connect as a sink does. Where From is empty, it becomes the address of
// the sink's topics.
func (c *Config) UseKafka(k *kafka.Config, cluster string) (err error) {
	c.Kafka, err = k.Connection(strings.ReplaceAll(c.Client, " ", "-"))
	if err != nil || c.From != "" {
		return err
	}
	topic, err := Pattern(k.Topic, cluster, event.AppendTopicPart)
	c.From = "kafka://" + strings.Join(k.Brokers, ",") + "/" + topic
	return err
}

// Pattern is what a template of streams, subjects or topics stands for, with * for each field that
// is not known.
func Pattern(template, cluster string, encode func([]byte, string) []byte) (string, error) {
	t, err := event.ParseTemplate(template)
	if err != nil {
		return "", err
	}
	known := map[string]string{}
	if cluster != "" {
		known["cluster"] = cluster
	}
	return t.Pattern("*", known, encode), nil
}
