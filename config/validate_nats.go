package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
)

func (n *NATS) validate(ps *settings.Report, path string) {
	n.validateServers(ps, path+".servers")
	if n.InboxPrefix == "" || strings.ContainsAny(n.InboxPrefix, " \t\r\n*>") ||
		strings.HasPrefix(n.InboxPrefix, ".") || strings.HasSuffix(n.InboxPrefix, ".") {
		ps.Add(path+".inboxPrefix", "want a subject without wildcards, as _INBOX_bridge, got %q",
			n.InboxPrefix)
	}
	validateTemplate(ps, path+".subject", n.Subject)
	if n.DeadLetterSubject != "" && n.DeadLetterSubject != "off" {
		validateTemplate(ps, path+".deadLetterSubject", n.DeadLetterSubject)
	}
	validateSubject(ps, path+".subject", n.Subject)
	validateSubject(ps, path+".deadLetterSubject", n.DeadLetterSubject)
	n.validateAuth(ps, path)
	n.validateEmbedded(ps, path)
	n.validateMode(ps, path)
	n.TLS.validate(ps, path+".tls")
	validateAtMostOne(ps, path, setting{"domain", n.Domain != ""},
		setting{"apiPrefix", n.APIPrefix != ""})
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

func (n *NATS) validateServers(ps *settings.Report, path string) {
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

func (n *NATS) validateAuth(ps *settings.Report, path string) {
	validateAtMostOne(ps, path,
		setting{"credsFile", n.CredsFile != ""}, setting{"nkeyFile", n.NkeyFile != ""},
		setting{"token", n.Token != ""}, setting{"tokenFile", n.TokenFile != ""},
		setting{"username", n.Username != ""})
	validateAtMostOne(ps, path, setting{"password", n.Password != ""},
		setting{"passwordFile", n.PasswordFile != ""})
	passwords := givenKeys(setting{"password", n.Password != ""},
		setting{"passwordFile", n.PasswordFile != ""})
	switch {
	case n.Username != "" && len(passwords) == 0:
		ps.Add(path+".username", "requires password or passwordFile")
	case n.Username == "" && len(passwords) > 0:
		ps.Add(settings.Join(path, passwords[0]), "requires username")
	}
}

// validateEmbedded refuses what the embedded server does not do, lest somebody takes it for
// protected.
func (n *NATS) validateEmbedded(ps *settings.Report, path string) {
	if !n.Embedded {
		if n.StoreDir != "" {
			ps.Add(path+".storeDir", "has no effect without embedded: true")
		}
		return
	}
	for _, key := range givenKeys(
		setting{"credsFile", n.CredsFile != ""}, setting{"nkeyFile", n.NkeyFile != ""},
		setting{"token", n.Token != ""},
		setting{"tokenFile", n.TokenFile != ""}, setting{"username", n.Username != ""},
		setting{"tls", n.TLS != nil}, setting{"domain", n.Domain != ""},
		setting{"apiPrefix", n.APIPrefix != ""}) {
		ps.Add(settings.Join(path, key), "the embedded server has neither accounts nor TLS nor domains; run a "+
			"NATS server of its own for that")
	}
	if n.Stream.Replicas > 1 {
		ps.Add(path+".stream.replicas", "the embedded server is a single one, so want 0 or 1")
	}
}

func (n *NATS) validateMode(ps *settings.Report, path string) {
	n.validateBucket(ps, path)
	if n.Mode != "core" {
		n.Stream.validate(ps, path+".stream")
		return
	}
	if ps.Origins.Given(path + ".stream") {
		ps.Add(path+".stream", "has no effect with mode core")
	}
	for _, key := range givenKeys(setting{"domain", n.Domain != ""},
		setting{"apiPrefix", n.APIPrefix != ""}) {
		ps.Add(settings.Join(path, key), "has no effect with mode core")
	}
	if n.Objects.Bucket != "" {
		ps.Add(path+".objects", "has no effect with mode core")
	}
}

func (s *Stream) validate(ps *settings.Report, path string) {
	if strings.Contains(s.Name, "{") {
		validateTemplate(ps, path+".name", s.Name)
		if len(s.Subjects) > 0 {
			ps.Add(path+".subjects", "follow from subject when the name has fields; leave them out")
		}
	}
	if s.Name == "" || strings.ContainsAny(s.Name, " \t\r\n.*>/\\") {
		ps.Add(path+".name", "want the name of a stream, without spaces and . * > / \\, got %q", s.Name)
	}
	if s.Manage == "create" {
		requireLimit(ps, path+".name", path+".maxStreams", s.Name, "a stream")
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
