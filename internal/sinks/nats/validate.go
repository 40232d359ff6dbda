package nats

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Validate reports what is wrong with the keys.
func (n *Config) Validate(ps *settings.Report, path string) {
	n.validateServers(ps, path+".servers")
	if n.InboxPrefix == "" || strings.ContainsAny(n.InboxPrefix, " \t\r\n*>") ||
		strings.HasPrefix(n.InboxPrefix, ".") || strings.HasSuffix(n.InboxPrefix, ".") {
		ps.Add(path+".inboxPrefix", "want a subject without wildcards, as _INBOX_bridge, got %q",
			n.InboxPrefix)
	}
	sinks.ValidateTemplate(ps, path+".subject", n.Subject)
	if n.DeadLetterSubject != "" && n.DeadLetterSubject != "off" {
		sinks.ValidateTemplate(ps, path+".deadLetterSubject", n.DeadLetterSubject)
	}
	validateSubject(ps, path+".subject", n.Subject)
	validateSubject(ps, path+".deadLetterSubject", n.DeadLetterSubject)
	n.validateAuth(ps, path)
	n.validateEmbedded(ps, path)
	n.validateMode(ps, path)
	n.TLS.Validate(ps, path+".tls")
	ps.AtMostOne(path, settings.Key("domain", n.Domain != ""),
		settings.Key("apiPrefix", n.APIPrefix != ""))
	if n.APIPrefix != "" && (strings.ContainsAny(n.APIPrefix, " \t\r\n*>") ||
		strings.HasSuffix(n.APIPrefix, ".")) {
		ps.Add(path+".apiPrefix", "want the beginning of a subject, as $JS.hub.API, got %q", n.APIPrefix)
	}
	encrypted := n.TLS != nil || slices.ContainsFunc(n.urls(),
		func(u *url.URL) bool { return u.Scheme == "tls" })
	if n.TLSFirst && !encrypted {
		ps.Add(path+".tlsFirst", "has no effect without the section tls or servers of tls://")
	}
}

func (n *Config) validateServers(ps *settings.Report, path string) {
	if len(n.Servers) == 0 && !ps.Has(path) {
		ps.Add(path, "must not be empty")
	}
	servers := make([]*url.URL, 0, len(n.Servers))
	for i, address := range n.Servers {
		server, err := address.Parse()
		if err == nil && !slices.Contains([]string{"nats", "tls", "ws", "wss"}, server.Scheme) {
			err = fmt.Errorf("want a scheme of nats, tls, ws or wss, got %q", server.Scheme)
		}
		if err != nil {
			ps.Add(fmt.Sprintf("%s[%d]", path, i), "%v", err)
		}
		servers = append(servers, server)
	}
	if n.Embedded && !ps.Has(path) && (len(servers) != 1 || servers[0].Scheme != "nats") {
		ps.Add(path, "an embedded server listens on one address of scheme nats, such as "+
			"nats://127.0.0.1:4222")
	}
}

// validateSubject refuses what NATS would: wildcards, spaces and empty tokens between the fields.
func validateSubject(ps *settings.Report, path, template string) {
	switch {
	case template == "":
	case strings.ContainsAny(template, " \t\r\n*>"):
		ps.Add(path, "a subject to publish to holds no space, * or >, got %q", template)
	case strings.HasPrefix(template, ".") || strings.HasSuffix(template, ".") ||
		strings.Contains(template, ".."):
		ps.Add(path, "a subject has no empty tokens, got %q", template)
	}
}

func (n *Config) validateAuth(ps *settings.Report, path string) {
	ps.AtMostOne(path,
		settings.Key("credsFile", n.CredsFile != ""), settings.Key("nkeyFile", n.NkeyFile != ""),
		settings.Key("token", n.Token != ""), settings.Key("tokenFile", n.TokenFile != ""),
		settings.Key("username", n.Username != ""))
	ps.AtMostOne(path, settings.Key("password", n.Password != ""),
		settings.Key("passwordFile", n.PasswordFile != ""))
	passwords := settings.GivenKeys(settings.Key("password", n.Password != ""),
		settings.Key("passwordFile", n.PasswordFile != ""))
	switch {
	case n.Username != "" && len(passwords) == 0:
		ps.Add(path+".username", "requires password or passwordFile")
	case n.Username == "" && len(passwords) > 0:
		ps.Add(settings.Join(path, passwords[0]), "requires username")
	}
}

// validateEmbedded refuses what the embedded server does not do, lest somebody takes it for
// protected.
func (n *Config) validateEmbedded(ps *settings.Report, path string) {
	if !n.Embedded {
		if n.StoreDir != "" {
			ps.Add(path+".storeDir", "has no effect without embedded: true")
		}
		return
	}
	for _, key := range settings.GivenKeys(
		settings.Key("credsFile", n.CredsFile != ""), settings.Key("nkeyFile", n.NkeyFile != ""),
		settings.Key("token", n.Token != ""),
		settings.Key("tokenFile", n.TokenFile != ""), settings.Key("username", n.Username != ""),
		settings.Key("tls", n.TLS != nil), settings.Key("domain", n.Domain != ""),
		settings.Key("apiPrefix", n.APIPrefix != "")) {
		ps.Add(settings.Join(path, key), "the embedded server has neither accounts nor TLS nor domains; run a "+
			"NATS server of its own for that")
	}
	if n.Stream.Replicas > 1 {
		ps.Add(path+".stream.replicas", "the embedded server is a single one, so want 0 or 1")
	}
}

func (n *Config) validateMode(ps *settings.Report, path string) {
	n.validateBucket(ps, path)
	if n.Mode != Core {
		n.Stream.validate(ps, path+".stream")
		return
	}
	if ps.Origins.Given(path + ".stream") {
		ps.Add(path+".stream", "has no effect with mode core")
	}
	for _, key := range settings.GivenKeys(settings.Key("domain", n.Domain != ""),
		settings.Key("apiPrefix", n.APIPrefix != "")) {
		ps.Add(settings.Join(path, key), "has no effect with mode core")
	}
	if n.Objects.Bucket != "" {
		ps.Add(path+".objects", "has no effect with mode core")
	}
}

func (s *Stream) validate(ps *settings.Report, path string) {
	if strings.Contains(s.Name, "{") {
		sinks.ValidateTemplate(ps, path+".name", s.Name)
		if len(s.Subjects) > 0 {
			ps.Add(path+".subjects", "follow from subject when the name has fields; leave them out")
		}
	}
	if s.Name == "" || strings.ContainsAny(s.Name, " \t\r\n.*>/\\") {
		ps.Add(path+".name", "want the name of a stream, without spaces and . * > / \\, got %q", s.Name)
	}
	if s.Manage == "create" {
		sinks.RequireLimit(ps, path+".name", path+".maxStreams", s.Name, "a stream")
	}
	if s.MaxStreams < 1 {
		ps.Add(path+".maxStreams", "want at least 1, got %d", s.MaxStreams)
	}
	if s.Replicas > 5 {
		ps.Add(path+".replicas", "want at most 5, got %d", s.Replicas)
	}
	const shortest = 100 * time.Millisecond // that a server takes
	for _, d := range []struct {
		key  string
		time time.Duration
	}{{"maxAge", s.MaxAge}, {"duplicateWindow", s.DuplicateWindow}} {
		if d.time > 0 && d.time < shortest {
			ps.Add(path+"."+d.key, "want at least %v, got %v", shortest, d.time)
		}
	}
	if s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge {
		ps.Add(path+".duplicateWindow", "is %v, longer than maxAge of %v", s.DuplicateWindow, s.MaxAge)
	}
}

// Unused are the keys that have no effect with the mode.
func (n *Config) Unused() []string {
	switch n.Mode {
	case Core:
		return []string{"stream", "objects"}
	case KV:
		keys := []string{"subject", "deadLetterSubject"}
		for _, key := range bucketSettings {
			keys = append(keys, "stream."+key)
		}
		return keys
	}
	return nil
}

// bucketSettings are those of a stream that follow from mode kv.
var bucketSettings = []string{
	"name", "maxStreams", "subjects", "maxAge", "maxMsgsPerSubject", "denyDelete", "denyPurge",
}

// validateBucket refuses settings that follow from the mode.
func (n *Config) validateBucket(ps *settings.Report, path string) {
	if n.Mode != KV {
		if n.Bucket != "" {
			ps.Add(path+".bucket", "has no effect without mode: kv")
		}
		return
	}
	switch {
	case n.Bucket == "":
		ps.Add(path+".bucket", "required with mode kv: the name of the bucket, such as K8S")
	case !bucketName.MatchString(n.Bucket):
		ps.Add(path+".bucket", "want letters, digits, dashes and underscores, got %q", n.Bucket)
	}
	for _, key := range n.Unused() {
		if ps.Origins.Given(path + "." + key) {
			ps.Add(path+"."+key, "has no effect with mode kv: leave it out")
		}
	}
	if n.Stream.Manage == "off" {
		ps.Add(path+".stream.manage", "off is not for mode kv, which reads the bucket: take verify")
	}
}

// Warn reports secrets in plain text, and streams without number.
func (n *Config) Warn(ps *settings.Report, path string) {
	p := n.Protection()
	secrets := settings.GivenKeys(
		settings.Key("username", n.Username != ""), settings.Key("token", n.Token != ""),
		settings.Key("tokenFile", n.TokenFile != ""),
		settings.Key("servers", n.urlHasUser()))
	if p == sinks.PlainText && len(secrets) > 0 && !n.onLoopback() {
		ps.Add(settings.Join(path, secrets[0]),
			"is sent in plain text unless the server asks for TLS: use tls:// or the section tls")
	}
	n.TLS.WarnOfSkippedVerify(ps, path, p)
	sinks.WarnOfMany(ps, path+".stream.name", n.Stream.Name, "a stream", n.Stream.MaxStreams)
}

func (n *Config) urlHasUser() bool {
	return slices.ContainsFunc(n.urls(), func(u *url.URL) bool { return u.User != nil })
}

// onLoopback reports whether all servers are on this machine.
func (n *Config) onLoopback() bool {
	return !slices.ContainsFunc(n.urls(), func(u *url.URL) bool { return !sinks.OnLoopback(u) })
}

// check reports everything that is wrong, and sets the subjects.
func (c *Options) check() (subject, deadLetter *event.Template, err error) {
	if c.Mode == KV {
		subject, err = event.ParseTemplate(c.Subject)
		return subject, nil, errors.Join(err, c.checkBucket(),
			oneOf("encoding", c.Encoding, sinks.Encodings...), c.checkConnection(),
			c.Stream.check())
	}
	subject, subjectErr := parseSubject("subject", c.Subject)
	var deadErr error
	if c.DeadLetterSubject != NoDeadLetter {
		deadLetter, deadErr = parseSubject("deadLetter", c.DeadLetterSubject)
	}
	problems := []error{
		oneOf("mode", c.Mode, JetStream, Core, KV),
		oneOf("encoding", c.Encoding, sinks.Encodings...),
		subjectErr, deadErr, c.checkConnection(),
	}
	if strings.ContainsAny(c.Objects.Bucket, " \t\r\n.*>/\\") {
		problems = append(problems, fmt.Errorf("objects.bucket %q: spaces and . * > / \\ are not "+
			"allowed in it", c.Objects.Bucket))
	}
	if c.Mode == JetStream {
		problems = append(problems, c.Stream.check())
		if subjectErr == nil && deadErr == nil && c.Stream.Manage != Off {
			problems = append(problems, c.deriveSubjects(subject, deadLetter))
		}
	}
	return subject, deadLetter, errors.Join(problems...)
}

func (s *Stream) check() error {
	var name, age error
	if _, err := event.ParseTemplate(s.Name); err != nil {
		name = fmt.Errorf("stream.name: %w", err)
	} else if strings.ContainsAny(s.Name, " \t\r\n.*>/\\") {
		name = fmt.Errorf("stream.name %q: spaces and . * > / \\ are not allowed in it", s.Name)
	}
	if s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge {
		age = fmt.Errorf("stream.duplicates %v is longer than stream.maxAge %v", s.DuplicateWindow,
			s.MaxAge)
	}
	return errors.Join(name, age,
		oneOf("stream.storage", s.Storage, "file", "memory"),
		oneOf("stream.compression", s.Compression, "s2", "none"),
		oneOf("stream.manage", s.Manage, Create, Verify, Off))
}

// checkConnection reports two ways to authenticate.
func (c *Options) checkConnection() error {
	ways := settings.GivenKeys(settings.Key("credsFile", c.CredsFile != ""),
		settings.Key("nkeyFile", c.NkeyFile != ""), settings.Key("token", c.Token != ""),
		settings.Key("tokenFile", c.TokenFile != ""), settings.Key("username", c.Username != ""))
	var auth, tls error
	switch {
	case len(ways) > 1:
		auth = errors.New("auth: more than one of credsFile, nkeyFile, token, tokenFile and user is set")
	case c.Password != "" && c.Username == "":
		auth = errors.New("auth: password without user")
	}
	if c.TLS != nil && (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		tls = errors.New("tls: certFile and keyFile belong together, one of them is not set")
	}
	return errors.Join(auth, tls)
}

func oneOf(field, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s %q: want one of %s", field, value, strings.Join(allowed, ", "))
}
