package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats/server"
)

var _ interface {
	sinks.Remote
	sinks.Filler
	sinks.Shortener
} = (*Config)(nil)

// New makes the sink, and with the key `embedded` the server.
func (n *Config) New(c sinks.Common, env *sinks.Env) (sinks.Sink, sinks.Service, error) {
	loaded, err := n.Load(env.StateDir)
	if err != nil {
		return nil, nil, err
	}
	if n.Embedded {
		loaded.Stream.MaxBytes = cmp.Or(loaded.Stream.MaxBytes, embeddedStreamBytes)
	}
	sink, err := New(Options{
		Config: loaded, Common: c, Env: *env, Client: "bridge " + env.Cluster + "/" + c.Name,
	})
	if err != nil || !n.Embedded {
		return sink, nil, err
	}
	server, err := n.server(env)
	if err != nil {
		return nil, nil, err
	}
	return sink, server, nil
}

// embeddedStreamBytes bounds the stream of an embedded server below what the server may store in
// all: a full stream drops its oldest events, a full server takes no more.
const embeddedStreamBytes = 8 << 30

// Load returns the section with the secrets that its files hold. What the client reads at each
// connect is checked: the client would report it as a failure to connect, and try again forever.
func (n *Config) Load(stateDir string) (Config, error) {
	loaded := *n
	var tokenErr, passwordErr error
	loaded.Token, tokenErr = settings.ReadSecret(n.Token, n.TokenFile)
	loaded.Password, passwordErr = settings.ReadSecret(n.Password, n.PasswordFile)
	loaded.TokenFile = ""
	if n.Embedded {
		loaded.TokenFile = n.tokenFile(stateDir)
	}
	_, tlsErr := n.TLS.Load()
	return loaded, errors.Join(
		sinks.AboutKey("tokenFile", tokenErr), sinks.AboutKey("passwordFile", passwordErr),
		sinks.AboutKey("credsFile", canRead(n.CredsFile)), sinks.AboutKey("nkeyFile", canRead(n.NkeyFile)),
		tlsErr)
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

// server is the server that listens at the sink's address.
func (n *Config) server(env *sinks.Env) (sinks.Service, error) {
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
		env.Log.Warn("the embedded NATS server can be reached from other machines, and tokens and "+
			"events pass there in plain text", "host", host)
	}
	command, file := "nats --server "+n.Servers[0].String(), n.tokenFile(env.StateDir)
	hints := env.Log.With("token_of_other_users", file)
	if n.Mode == KV {
		hints.Info("objects go to the embedded NATS server; read them with any NATS client",
			"keys", command+" kv ls "+n.Bucket, "live", command+" kv watch "+n.Bucket)
	} else {
		hints.Info("events go to the embedded NATS server; read them with any NATS client",
			"live", command+" subscribe '"+allSubjects(n.Subject)+"'",
			"stored", command+" stream view "+n.Stream.Name)
	}
	return server.New(server.Config{
		Host: host, Port: number, StoreDir: n.storeDir(env.StateDir), Log: env.Log,
		IsOwnUser: env.IsOwnUser,
		Token: func() (string, error) {
			if err := settings.MakeToken(file); err != nil {
				return "", err
			}
			return settings.ReadToken(file)
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

// storeDir is where an embedded server keeps its streams.
func (n *Config) storeDir(stateDir string) string {
	return cmp.Or(n.StoreDir, filepath.Join(stateDir, "nats"))
}

// tokenFile has the token that an embedded server wants. The bridge makes it.
func (n *Config) tokenFile(stateDir string) string {
	return filepath.Join(n.storeDir(stateDir), "token")
}

// Check asks the server, unless it runs only when the bridge does.
func (n *Config) Check(
	ctx context.Context, c sinks.Common, env *sinks.Env, _ func(string) []string,
) error {
	if n.Embedded {
		return nil
	}
	sink, _, err := n.New(c, env)
	if err != nil {
		return err
	}
	connect, stream := sink.(*Sink).Check(ctx)
	return errors.Join(sinks.AboutKey("servers", connect), sinks.AboutKey("stream", stream))
}

// Form is that of a message.
func (n *Config) Form(c sinks.Common) (sinks.Form, error) {
	subject, err := event.ParseTemplate(n.Subject)
	token := event.AppendSubjectToken
	if n.Mode == KV {
		token = event.AppendKeyToken
	}
	return sinks.Form{
		Prefix: "ce-", Value: event.HeaderValue, Encoding: c.Encoding,
		Destination: func(e *event.Event) string {
			return fmt.Sprintf("sink %s: subject %s, Nats-Msg-Id %s",
				c.Name, subject.Append(nil, e, token), e.MessageID())
		},
	}, err
}

// Describe says on which subjects messages are.
func (n *Config) Describe() *asyncapi.Sink {
	d := &asyncapi.Sink{
		Protocol: "nats", Address: n.Subject, DeadLetters: n.DeadLetterSubject, Prefix: "ce-",
		MediaType:   "ce-datacontenttype",
		ContentType: "Content-Type",
		Encode:      event.HeaderValue, Own: []string{"Nats-Msg-Id"}, HeadersToo: n.Mode == KV,
		Oversize: true,
	}
	switch {
	case d.DeadLetters == NoDeadLetter || n.Mode == KV:
		d.DeadLetters = ""
	case d.DeadLetters == "":
		d.DeadLetters = DefaultDeadLetter(n.Subject, n.Stream.Name)
	}
	for _, server := range n.Servers {
		if u, err := url.Parse(string(server)); err == nil {
			d.Servers = append(d.Servers, u.Host)
		}
	}
	return d
}

// Places are the servers.
func (n *Config) Places() (places []string) {
	for _, u := range n.urls() {
		places = append(places, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "4222")))
	}
	return places
}

// Protection is that of the servers' URLs and of TLS.
func (n *Config) Protection() sinks.Protection {
	encrypted := true
	for _, u := range n.urls() {
		encrypted = encrypted && (n.TLS != nil || u.Scheme == "tls" || u.Scheme == "wss")
	}
	return n.TLS.Protection(encrypted)
}

// ReadOnce are the files of the password and of the token.
func (n *Config) ReadOnce() []string { return []string{n.PasswordFile, n.TokenFile} }

// Target is the stream and the subject.
func (n *Config) Target() []string { return []string{n.Stream.Name, n.Subject} }

// Templates are those of subjects and of the stream.
func (n *Config) Templates() []sinks.Template {
	return []sinks.Template{
		{Key: "subject", Text: n.Subject},
		{Key: "deadLetterSubject", Text: n.DeadLetterSubject},
		{Key: "stream.name", Text: n.Stream.Name},
	}
}

// SameServer reports whether two sinks have streams in one account, by what the configuration calls
// it.
func (n *Config) SameServer(other *Config) bool {
	if n.Mode == Core || other.Mode == Core || n.Domain != other.Domain ||
		n.APIPrefix != other.APIPrefix || n.account() != other.account() {
		return false
	}
	hosts := n.hosts()
	return slices.ContainsFunc(other.hosts(),
		func(host string) bool { return slices.Contains(hosts, host) })
}

// account is who the sink is to the server, which says in whose account its streams are.
func (n *Config) account() [5]string {
	user, token := n.Username, string(n.Token)
	if servers := n.urls(); len(servers) > 0 && servers[0].User != nil && user == "" {
		user = servers[0].User.Username()
	}
	return [5]string{n.CredsFile, n.NkeyFile, token, n.TokenFile, user}
}

// hosts are the addresses of the servers, each with its port.
func (n *Config) hosts() (hosts []string) {
	for _, s := range n.urls() {
		hosts = append(hosts, strings.ToLower(s.Hostname())+":"+cmp.Or(s.Port(), defaultPort(s)))
	}
	return hosts
}

func defaultPort(server *url.URL) string {
	switch server.Scheme {
	case "ws":
		return "80"
	case "wss":
		return "443"
	default:
		return "4222"
	}
}

// urls are the servers whose URLs can be parsed; validation reports the others.
func (n *Config) urls() (list []*url.URL) {
	for _, address := range n.Servers {
		if u, err := address.Parse(); err == nil {
			list = append(list, u)
		}
	}
	return list
}
