package sinks

import (
	"context"
	"io"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/settings"
)

// Section is the keys of one kind of sink, and what follows from them. config.Sink has a field for
// each kind; everything else about a kind is in the package of its section. Defaults are tags of
// the keys, and their documentation is the comments.
type Section interface {
	// Validate reports what is wrong with the keys. path is that of the section. It reads no file
	// and contacts nobody.
	Validate(ps *settings.Report, path string)
	// New makes the sink, and the server that has to run for it, nil for none. It starts nothing
	// and contacts nobody. An error about one key is a KeyError.
	New(c Common, env *Env) (Sink, Service, error)
	// Places returns where the sink sends to. A change of the file alone adds no place to a running
	// bridge.
	Places() []string
	// Form says what events look like at the sink.
	Form(c Common) (Form, error)
	// Describe says where events go, and what is around them in a message; nil where nobody reads
	// events.
	Describe() *asyncapi.Sink
}

// Remote is a Section of a sink that has a connection.
type Remote interface {
	Section
	// Warn reports what a person may not have meant.
	Warn(ps *settings.Report, path string)
	// Check asks the broker whether it is as the keys want it, and changes nothing. topics returns
	// those that a template stands for, as far as they depend on no object. Errors are KeyErrors.
	Check(ctx context.Context, c Common, env *Env, topics func(template string) []string) error
	// Target is where at its broker the sink sends to. Addresses are not in it, since each replica
	// may reach the same broker by one of its own.
	Target() []string
	// Protection is the least that the keys ensure.
	Protection() Protection
	// ReadOnce returns the files that New reads, and that nobody reads again: what they hold is
	// part of the configuration. "" is none.
	ReadOnce() []string
	// Templates returns the templates of subjects, topics and streams.
	Templates() []Template
}

// Filler is a Section with keys whose defaults follow from other keys, or from the environment.
type Filler interface {
	// Fill sets the keys that were not given. origins has those that were, and gets those that Fill
	// has taken from the environment.
	Fill(path string, origins settings.Origins)
}

// OwnEncoder is a Section of a sink with one form of events, where the key `encoding` has no
// effect.
type OwnEncoder interface {
	// OwnEncoding names the sink, and says why.
	OwnEncoding() string
}

// Shortener is a Section of which some keys have no effect beside others.
type Shortener interface {
	// Unused returns the paths of the keys that have no effect. They are not printed.
	Unused() []string
}

// Common is what a sink has beside the section of its kind.
type Common struct {
	// Name identifies the sink. It does not change from process to process.
	Name string
	// Encoding is Binary or Structured.
	Encoding string
}

// Values of Common.Encoding.
const (
	Binary     = "binary"     // attributes as headers, the payload as it is
	Structured = "structured" // one JSON document with everything in it
)

// Env is what surrounds a sink. Zero values mean that there is none, or the documented default.
type Env struct {
	// Cluster is the value of {cluster} in templates.
	Cluster string
	// StateDir is the directory for what the sink itself keeps.
	StateDir string
	// Out is where the sink prints; default os.Stdout.
	Out io.Writer
	// Log gets state changes and what an operator can act on.
	Log *slog.Logger
	// Registry gets the sink's metrics.
	Registry prometheus.Registerer

	// Informers returns the current informers of the sink; nil: not known. It may be called
	// concurrently.
	Informers func() []string
	// LostByCompaction returns what a compacted topic loses of the sink's events; "" for nothing.
	// It may be called concurrently.
	LostByCompaction func() string
	// Owners has the streams of all sinks of the process. nil: this is the only sink.
	Owners *Owners

	// Fence keeps a process that published before this one out of a stream. nil: there is none.
	Fence *Fence
	// Confirm returns nil while this process is the one that may publish. nil: it is the only one.
	Confirm func(ctx context.Context) error

	// Serve is called with the *query.Questions of a history that is open, so that others can ask
	// it. end returns when nobody asks any more. nil: nobody asks.
	Serve func(questions any) (end func())
	// IsOwnUser reports whether the process at the other end of a TCP connection on this machine
	// has the user of this process. nil in a pod, where others have the same user.
	IsOwnUser func(remote, local net.Addr) bool
}

// Fence keeps out a process that published before this one: it may have been paused, and know
// nothing of its successor.
//
// A process that begins to publish stores a message on a subject of the stream, the fence. Each of
// its events names the sequence that the last message there must have. The server refuses the event
// when a successor has stored another message there meanwhile.
type Fence struct {
	// Name distinguishes the fences of several bridges that share a stream: it is a token of the
	// subject. The next token begins with the sink's name: two sinks of one leader in one stream
	// have fences of their own, or each would fence the other.
	Name string
	// Confirm returns nil while this process is the one that may publish. It asks the authority,
	// and does not answer from memory: it is called after the fence was read and before it is
	// taken, which only succeeds when nobody took it in between.
	Confirm func(ctx context.Context) error
}

// Service is something that has to run before a sink can work.
type Service interface {
	Run(ctx context.Context) error
	WaitReady(ctx context.Context) error
}

// Form is what events look like at a sink.
type Form struct {
	Prefix     string              // of the attributes' headers
	Value      func(string) string // an attribute's value as a header
	Structured bool
	// Destination describes where the event would go.
	Destination func(*event.Event) string
}

// KeyError is what is wrong with a key of a section: a file that it names can't be used.
type KeyError struct {
	Key string // below the section
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

func (e *KeyError) Unwrap() error { return e.Err }

// AboutKey is err with the key that it is about; nil for nil.
func AboutKey(key string, err error) error {
	if err == nil {
		return nil
	}
	return &KeyError{key, err}
}
