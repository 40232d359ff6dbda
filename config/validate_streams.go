package config

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
)

// validateStreams refuses two sinks that get events of one informer in one stream. A message's id
// says of which informer and event it is, not of which sink: the stream would take the second
// sink's for duplicates of the first one's. Where the servers or the accounts are called by other
// names, the sinks find it when they are opened.
func (c *Config) validateStreams(ps *settings.Report) {
	for i := range c.Sinks {
		path := fmt.Sprintf("sinks[%d].nats.stream.name", i)
		for j := range i {
			informer := c.sharedStream(&c.Sinks[j], &c.Sinks[i])
			if informer == "" || ps.Has(path) {
				continue
			}
			ps.Add(path, "%q is a stream of sinks[%d] (%s) too, and informer %s feeds both: a stream "+
				"takes each event once, so the second sink's would be dropped; "+
				"give this one a stream of its own, as nats.stream.name: %s, and with nats.subject subjects "+
				"that do not overlap with those of %s",
				c.Sinks[i].NATS.Stream.Name, j, c.Sinks[j].Name, informer, ownStream(&c.Sinks[i]),
				c.Sinks[j].Name)
		}
	}
}

// ownStream is a name for the stream of a sink.
func ownStream(s *Sink) string {
	return s.NATS.Stream.Name + "-" + strings.ToUpper(s.Name)
}

// sharedStream is an informer whose events two sinks would put into one stream; "" for none.
func (c *Config) sharedStream(a, b *Sink) string {
	if a.NATS == nil || b.NATS == nil || a.Name == b.Name || !a.NATS.sameServer(b.NATS) ||
		sameBucket(a, b) {
		return ""
	}
	for i := range c.Informers {
		inf := &c.Informers[i]
		feeds := func(s *Sink) bool {
			return slices.ContainsFunc(inf.Sinks, func(b Binding) bool { return b.Name == s.Name })
		}
		if feeds(a) && feeds(b) && canBeEqual(c.streamTokens(a, inf), c.streamTokens(b, inf)) {
			return inf.Name
		}
	}
	return ""
}

// sameServer reports whether two sinks have streams in one account, by what the configuration calls
// it.
func (n *NATS) sameServer(other *NATS) bool {
	if n.Mode == "core" || other.Mode == "core" || n.Domain != other.Domain ||
		n.APIPrefix != other.APIPrefix || n.account() != other.account() {
		return false
	}
	hosts := n.hosts()
	return slices.ContainsFunc(other.hosts(),
		func(host string) bool { return slices.Contains(hosts, host) })
}

// account is who the sink is to the server, which says in whose account its streams are.
func (n *NATS) account() [5]string {
	user, token := n.Username, string(n.Token)
	if servers := n.urls(); len(servers) > 0 && servers[0].User != nil && user == "" {
		user = servers[0].User.Username()
	}
	return [5]string{n.CredsFile, n.NkeyFile, token, n.TokenFile, user}
}

// hosts are the addresses of the servers, each with its port.
func (n *NATS) hosts() (hosts []string) {
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

// streamTokens is the name of a sink's streams for events of an informer: characters, and fields
// whose values are not known.
func (c *Config) streamTokens(s *Sink, inf *Informer) (tokens []string) {
	known := []string{"{informer}", string(event.AppendSubjectToken(nil, inf.Name))}
	if c.Cluster != "" {
		known = append(known, "{cluster}", string(event.AppendSubjectToken(nil, c.Cluster)))
	}
	name := strings.NewReplacer(known...).Replace(s.NATS.Stream.Name)
	for name != "" {
		n := 1
		if name[0] == '{' {
			n = max(strings.IndexByte(name, '}')+1, 1)
		}
		tokens, name = append(tokens, name[:n]), name[n:]
	}
	return tokens
}

// canBeEqual reports whether two names can be the same for one event. A field that both begin or
// end with has one value then.
func canBeEqual(a, b []string) bool {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	width := len(b) + 1
	// whether what is left of a from i can equal what is left of b from j
	table := make([]bool, (len(a)+1)*width)
	for i := len(a); i >= 0; i-- {
		for j := len(b); j >= 0; j-- {
			table[i*width+j] = canBeEqualFrom(a[i:], b[j:],
				func(i2, j2 int) bool { return table[(i+i2)*width+j+j2] })
		}
	}
	return table[0]
}

// canBeEqualFrom says so of what is left, by what is known of less. A field takes one character or
// more.
func canBeEqualFrom(a, b []string, less func(i, j int) bool) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	fieldA, fieldB := len(a[0]) > 1, len(b[0]) > 1
	return (a[0] == b[0] || fieldA || fieldB) && less(1, 1) || fieldA && less(0, 1) ||
		fieldB && less(1, 0)
}
