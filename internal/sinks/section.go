package sinks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

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
	// Encoding is one of Encodings.
	Encoding string
}

// Values of Common.Encoding.
const (
	Binary     = "binary"     // attributes as headers, the payload as it is
	Structured = "structured" // one JSON document with everything in it
	Flat       = "flat"       // one JSON record with a column for each attribute
)

// Encodings are all of them.
var Encodings = []string{Binary, Structured, Flat}

// AppendDocument appends the whole event, in an encoding that has no headers.
func AppendDocument(dst []byte, e *event.Event, encoding string) []byte {
	if encoding == Flat {
		return event.AppendFlat(dst, e)
	}
	return event.AppendStructured(dst, e)
}

// DocumentType returns the media type of what AppendDocument appends; "" of Binary.
func DocumentType(encoding string) string {
	switch encoding {
	case Structured:
		return event.StructuredContentType
	case Flat:
		return event.FlatContentType
	}
	return ""
}

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
	// Section returns the section of another sink, nil where there is none of that name. nil: not
	// known. It may be called concurrently.
	Section func(sink string) Section
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
	// Pseudonym replaces a user by a hash with the redaction key, which must be there when the sink
	// opens.
	Pseudonym func(user string) string
	// FollowUp publishes to another sink what is found out later about changes (bridge.FollowUp).
	FollowUp func(ctx context.Context, sink string, events []*event.Event) (settled []func(), err error)
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
	Prefix   string              // of the attributes' headers
	Value    func(string) string // an attribute's value as a header
	Encoding string
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

// Template is a template in a section.
type Template struct{ Key, Text string }

// ValidateTemplate reports a template that can't be parsed.
func ValidateTemplate(ps *settings.Report, path, text string) {
	if _, err := event.ParseTemplate(text); err != nil {
		ps.Add(path, "%v", err)
	}
}

// chosenFields returns the fields of a template whose values the author of an object chooses:
// name, uid, changed, attributes.
func chosenFields(text string) []string {
	template, err := event.ParseTemplate(text)
	if err != nil {
		return nil // reported, or not given
	}
	return slices.DeleteFunc(slices.Clone(template.Fields()), func(field string) bool {
		return field != "name" && field != "uid" && field != "changed" && !strings.HasPrefix(field, "attributes.")
	})
}

// RequireLimit refuses a name of topics or streams with a field that whoever writes objects
// chooses, until the limit in key is given: the first values use it up, and events of all others
// become dead letters.
func RequireLimit(ps *settings.Report, path, key, text, what string) {
	chosen := chosenFields(text)
	if len(chosen) == 0 || ps.Origins.Given(key) {
		return
	}
	ps.Add(path, "whoever writes an object chooses {%s}, and each value makes %s: set %s, the limit "+
		"for all of them together, or use {namespace} or {resource} in the name", chosen[0], what,
		key[strings.LastIndex(key, ".")+1:])
}

// WarnOfMany reports a template whose fields have a value for each object, or values that whoever
// writes an object chooses.
func WarnOfMany(ps *settings.Report, path, text, what string, most int) {
	for _, field := range chosenFields(text) {
		if field == "name" || field == "uid" {
			ps.Add(path, "{%s} makes %s for each object: events for more than %d are dead letters",
				field, what, most)
			continue
		}
		ps.Add(path, "whoever writes an object may choose {%s}: events go where they want, and "+
			"each value makes %s, of which there may be %d; route by {namespace} to keep tenants apart",
			field, what, most)
	}
}

// TLS is how a broker's certificate is checked and how the bridge identifies itself. With Kafka,
// being there at all (`tls: {}`) turns TLS on; with NATS the URL's scheme `tls://` does, or the
// server.
type TLS struct {
	// CAFile is the path of a PEM file with the authorities that may sign the broker's certificate.
	// Left out: the system's.
	CAFile string `yaml:"caFile"`
	// CertFile is the path of a PEM file with the bridge's own certificate. Needs `keyFile`.
	CertFile string `yaml:"certFile"`
	// KeyFile is the path of a PEM file with the private key of `certFile`.
	KeyFile string `yaml:"keyFile"`
	// ServerName is the name that the broker's certificate must be for. Left out: the host that is
	// connected to.
	ServerName string `yaml:"serverName"`
	// InsecureSkipVerify accepts any certificate. For tests: whoever is between can read and change
	// everything.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
}

// Validate reports what is wrong with the keys; nothing for a section that is not there.
func (t *TLS) Validate(ps *settings.Report, path string) {
	switch {
	case t == nil:
	case t.CertFile != "" && t.KeyFile == "":
		ps.Add(path+".keyFile", "required beside certFile")
	case t.KeyFile != "" && t.CertFile == "":
		ps.Add(path+".certFile", "required beside keyFile")
	case t.InsecureSkipVerify && t.CAFile != "":
		ps.Add(path+".caFile", "has no effect beside insecureSkipVerify")
	}
}

// WarnOfSkippedVerify reports that any certificate is accepted.
func (t *TLS) WarnOfSkippedVerify(ps *settings.Report, path string, p Protection) {
	if p == AnyCertificate {
		ps.Add(path+".tls.insecureSkipVerify", "accepts any certificate, so whoever is between can "+
			"read and change everything")
	}
}

// Load reads the files that the section names; nil for no section. The bridge's own certificate is
// read again for every connection, so it may be renewed while the bridge runs.
func (t *TLS) Load() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	out := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify, //nolint:gosec // validate warns of it
	}
	var rootsErr error
	if t.CAFile != "" {
		out.RootCAs, rootsErr = readRoots(t.CAFile)
		rootsErr = AboutKey("tls.caFile", rootsErr)
	}
	if t.CertFile == "" {
		return out, rootsErr
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", t.CertFile, t.KeyFile, err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil || rootsErr != nil {
		return nil, errors.Join(rootsErr, AboutKey("tls.certFile", err))
	}
	out.GetClientCertificate = func(
		*tls.CertificateRequestInfo,
	) (*tls.Certificate, error) {
		return load()
	}
	return out, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("there is no certificate in PEM in %s", file)
	}
	return roots, nil
}

// Protection is how a connection is protected, the weakest first.
type Protection int

// Values of Protection.
const (
	PlainText Protection = iota
	AnyCertificate
	CheckedTLS
)

func (p Protection) String() string {
	return [...]string{"plain text", "TLS that takes any certificate", "TLS"}[p]
}

// Protection returns how a connection is protected that is encrypted or not. t may be nil.
func (t *TLS) Protection(encrypted bool) Protection {
	switch {
	case !encrypted:
		return PlainText
	case t != nil && t.InsecureSkipVerify:
		return AnyCertificate
	}
	return CheckedTLS
}

// OnLoopback reports whether a URL leads to this machine.
func OnLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
