package sinkmaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/tokenfile"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/nats/server"
)

// natsKind publishes to NATS.
type natsKind struct {
	sink *config.Sink
	*config.NATS
}

func (natsKind) key() string { return "nats" }

func (k natsKind) target() []string { return []string{k.Stream.Name, k.Subject} }

func (k natsKind) make(m *Maker, log *slog.Logger) (sinks.Sink, Service, error) {
	c, n := k.sink, k.NATS
	connection, err := NATSConnection(n, m.StateDir, "bridge "+m.Cluster+"/"+c.Name)
	if err != nil {
		return nil, nil, err
	}
	connection.URL = serverList(n)
	sink, err := nats.New(nats.Config{
		Connection: connection,
		Sink:       c.Name, Cluster: m.Cluster,
		Mode: n.Mode, Bucket: n.Bucket, Encoding: c.Encoding,
		Subject: n.Subject, DeadLetter: n.DeadLetterSubject,
		Stream: natsStream(n), Objects: natsObjects(n),
		Informers: m.Feeds.informersOf(c.Name), Owners: m.Feeds.streamOwners(), Fence: m.Fence,
		Log: log, Metrics: m.Registry,
	})
	if err != nil || !n.Embedded {
		return sink, nil, err
	}
	broker, err := m.embedded(n, log)
	if err != nil {
		return nil, nil, err
	}
	return sink, broker, nil
}

// NATSConnection is how a client of a name connects, without the address. StateDir is the bridge's.
func NATSConnection(n *config.NATS, stateDir, name string) (c nats.Connection, err error) {
	auth, err := natsAuth(n)
	// The client reads the files itself, when it connects, and would try again forever.
	if _, tlsErr := tlsConfig(n.TLS); err != nil || tlsErr != nil {
		return c, errors.Join(err, tlsErr)
	}
	if n.Embedded {
		auth.TokenFile = embeddedTokenFile(n, stateDir)
	}
	return nats.Connection{
		Name: name, Domain: n.Domain, APIPrefix: n.APIPrefix, InboxPrefix: n.InboxPrefix,
		Auth: auth, TLS: natsTLS(n),
	}, nil
}

// serverList is what the client takes: URLs with commas between them. A comma within one is
// encoded.
func serverList(n *config.NATS) string {
	list := make([]string, 0, len(n.Servers))
	for _, server := range n.Servers {
		list = append(list, strings.ReplaceAll(string(server), ",", "%2C"))
	}
	return strings.Join(list, ",")
}

func natsAuth(n *config.NATS) (nats.Auth, error) {
	token, tokenErr := config.ReadSecret(n.Token, n.TokenFile)
	password, passwordErr := config.ReadSecret(n.Password, n.PasswordFile)
	err := errors.Join(aboutKey("tokenFile", tokenErr), aboutKey("passwordFile", passwordErr),
		aboutKey("credsFile", canRead(n.CredsFile)), aboutKey("nkeyFile", canRead(n.NkeyFile)))
	return nats.Auth{
		CredsFile: n.CredsFile, NKeyFile: n.NkeyFile, Token: string(token), User: n.Username,
		Password: string(password),
	}, err
}

// canRead is why a file cannot be read; nil for no file. The client reads it at each connect, and
// would report it as a failure to connect.
func canRead(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return f.Close()
}

// embeddedStreamBytes bounds the stream of an embedded server below what the server may store in
// all: a full stream drops its oldest events, a full server takes no more.
const embeddedStreamBytes = 8 << 30

func natsStream(n *config.NATS) nats.Stream {
	s := &n.Stream
	maxBytes := int64(s.MaxBytes)
	if n.Embedded {
		maxBytes = cmp.Or(maxBytes, embeddedStreamBytes)
	}
	// In the configuration 0 is no limit; to the sink it is the default.
	const noLimit = -1 * time.Second
	return nats.Stream{
		Name: s.Name, Max: s.MaxStreams, Subjects: s.Subjects, MaxAge: cmp.Or(s.MaxAge,
			noLimit), MaxBytes: maxBytes,
		Replicas: s.Replicas, Storage: s.Storage, Duplicates: s.DuplicateWindow, Manage: s.Manage,
		Compression: s.Compression, MaxMsgsPerSubject: int64(s.MaxMsgsPerSubject),
		Placement:  nats.Placement{Cluster: s.Placement.Cluster, Tags: s.Placement.Tags},
		DenyDelete: s.DenyDelete, DenyPurge: s.DenyPurge,
	}
}

func natsObjects(n *config.NATS) nats.Objects {
	return nats.Objects{
		Bucket: n.Objects.Bucket, MaxAge: cmp.Or(n.Objects.MaxAge, -1*time.Second),
		MaxBytes: int64(n.Objects.MaxBytes),
	}
}

func natsTLS(n *config.NATS) nats.TLS {
	t := n.TLS
	if t == nil {
		return nats.TLS{HandshakeFirst: n.TLSFirst}
	}
	return nats.TLS{
		HandshakeFirst: n.TLSFirst,
		CAFile:         t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName,
		Insecure: t.InsecureSkipVerify,
	}
}

// embedded is the server that listens at the sink's address.
func (m *Maker) embedded(n *config.NATS, log *slog.Logger) (Service, error) {
	address, err := url.Parse(string(n.Servers[0]))
	if err != nil {
		return nil, errors.New("servers: not a URL") // without the parser's error, which repeats it
	}
	host, port := address.Hostname(), cmp.Or(address.Port(), "4222")
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("servers: port %q is no number", port)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		log.Warn("the embedded NATS server can be reached from other machines, and tokens and "+
			"events pass there in plain text", "host", host)
	}
	command, file := "nats --server "+n.Servers[0].String(), embeddedTokenFile(n, m.StateDir)
	hints := log.With("token_of_other_users", file)
	if n.Mode == nats.KV {
		hints.Info("objects go to the embedded NATS server; read them with any NATS client",
			"keys", command+" kv ls "+n.Bucket, "live", command+" kv watch "+n.Bucket)
	} else {
		hints.Info("events go to the embedded NATS server; read them with any NATS client",
			"live", command+" subscribe '"+allSubjects(n.Subject)+"'",
			"stored", command+" stream view "+n.Stream.Name)
	}
	return server.New(server.Config{
		Host: host, Port: number, StoreDir: embeddedDir(n, m.StateDir), Log: log,
		OwnUser: !kube.InPod(),
		Token: func() (string, error) {
			if err := tokenfile.Make(file); err != nil {
				return "", err
			}
			return tokenfile.Read(file)
		},
	})
}

// allSubjects is a pattern of every subject that a template makes.
func allSubjects(template string) string {
	constant, _, hasFields := strings.Cut(template, "{")
	if !hasFields {
		return template
	}
	return constant[:strings.LastIndexByte(constant, '.')+1] + ">"
}

// embeddedDir is where an embedded server keeps its streams.
func embeddedDir(n *config.NATS, stateDir string) string {
	return cmp.Or(n.StoreDir, filepath.Join(stateDir, "nats"))
}

// embeddedTokenFile has the token that an embedded server wants. The bridge makes it.
func embeddedTokenFile(n *config.NATS, stateDir string) string {
	return filepath.Join(embeddedDir(n, stateDir), "token")
}

func (k natsKind) check(ctx context.Context, m *Maker, _ func(string) []string) error {
	if k.Embedded {
		return nil // it runs when the bridge does
	}
	sink, _, err := k.make(m, m.Log.With("sink", k.sink.Name))
	if err != nil {
		return err
	}
	connect, stream := sink.(*nats.Sink).Check(ctx)
	return errors.Join(aboutKey("servers", connect), aboutKey("stream", stream))
}

func (k natsKind) sample() (Form, error) {
	subject, err := event.ParseTemplate(k.Subject)
	token := event.AppendSubjectToken
	if k.Mode == nats.KV {
		token = event.AppendKeyToken
	}
	return Form{
		Prefix: "ce-", Value: event.HeaderValue, Structured: k.sink.Encoding == "structured",
		Destination: func(e *event.Event) string {
			return fmt.Sprintf("sink %s: subject %s, Nats-Msg-Id %s",
				k.sink.Name, subject.Append(nil, e, token), e.MessageID())
		},
	}, err
}

func (k natsKind) describe() *asyncapi.Sink {
	d := &asyncapi.Sink{
		Protocol: "nats", Address: k.Subject, DeadLetters: k.DeadLetterSubject, Prefix: "ce-",
		MediaType:   "ce-datacontenttype",
		ContentType: "Content-Type",
		Encode:      event.HeaderValue, Own: []string{"Nats-Msg-Id"}, HeadersToo: k.Mode == nats.KV,
		Oversize: true,
	}
	switch {
	case d.DeadLetters == nats.NoDeadLetter || k.Mode == nats.KV:
		d.DeadLetters = ""
	case d.DeadLetters == "":
		d.DeadLetters = nats.DefaultDeadLetter(k.Subject, k.Stream.Name)
	}
	for _, server := range k.Servers {
		if u, err := url.Parse(string(server)); err == nil {
			d.Servers = append(d.Servers, u.Host)
		}
	}
	return d
}
