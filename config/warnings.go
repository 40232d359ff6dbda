package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
)

// Warnings returns what a person may not have meant, as Problems: a bridge runs with it all the
// same.
func (c *Config) Warnings() (list []error) {
	ps := &settings.Report{Origins: c.origins}
	for i := range c.Sinks {
		s, path := &c.Sinks[i], fmt.Sprintf("sinks[%d]", i)
		switch {
		case s.NATS != nil:
			s.NATS.warn(ps, path+".nats", s.Protection())
		case s.Kafka != nil:
			s.Kafka.warn(ps, path+".kafka", s.Protection())
		case s.HTTP != nil:
			s.HTTP.warn(ps, path+".http", s.Protection())
		}
	}
	for _, p := range ps.List() {
		list = append(list, p)
	}
	return list
}

const skipsVerify = "accepts any certificate, so whoever is between can read and change everything"

func (n *NATS) warn(ps *settings.Report, path string, p Protection) {
	secrets := givenKeys(
		setting{"username", n.Username != ""}, setting{"token", n.Token != ""},
		setting{"tokenFile", n.TokenFile != ""},
		setting{"servers", n.urlHasUser()})
	if p == plainText && len(secrets) > 0 && !n.onLoopback() {
		ps.Add(settings.Join(path, secrets[0]),
			"is sent in plain text unless the server asks for TLS: use tls:// or the section tls")
	}
	if p == anyCertificate {
		ps.Add(path+".tls.insecureSkipVerify", skipsVerify)
	}
	warnOfMany(ps, path+".stream.name", n.Stream.Name, "a stream", n.Stream.MaxStreams)
}

func (k *Kafka) warn(ps *settings.Report, path string, p Protection) {
	if p == plainText && k.SASL != nil &&
		slices.Contains([]string{"PLAIN", "OAUTHBEARER"}, k.SASL.Mechanism) {
		ps.Add(path+".sasl.mechanism", "%s sends its secret in plain text: set tls", k.SASL.Mechanism)
	}
	if k.SASL != nil && k.SASL.OAuth != nil && strings.HasPrefix(k.SASL.OAuth.TokenURL, "http://") {
		ps.Add(path+".sasl.oauth.tokenURL", "the client's secret is sent in plain text: use https://")
	}
	if p == anyCertificate {
		ps.Add(path+".tls.insecureSkipVerify", skipsVerify)
	}
	warnOfMany(ps, path+".topic", k.Topic, "a topic", k.MaxTopics)
	warnOfMany(ps, path+".deadLetterTopic", k.DeadLetterTopic, "a topic", k.MaxTopics)
}

// warnOfMany warns of a template whose fields have a value for each object, or values that whoever
// writes an object chooses.
func warnOfMany(ps *settings.Report, path, text, what string, most int) {
	for _, field := range chosenFields(text) {
		if !strings.HasPrefix(field, "attributes.") {
			ps.Add(path, "{%s} makes %s for each object: events for more than %d are dead letters",
				field, what, most)
			continue
		}
		ps.Add(path, "whoever writes an object may choose {%s}: events go where they want, and "+
			"each value makes %s, of which there may be %d; route by {namespace} to keep tenants apart",
			field, what, most)
	}
}

// chosenFields are the fields of a template of which whoever writes objects makes as many values as
// they like.
func chosenFields(text string) []string {
	template, err := event.ParseTemplate(text)
	if err != nil {
		return nil // reported, or not given
	}
	return slices.DeleteFunc(slices.Clone(template.Fields()), func(field string) bool {
		return field != "name" && field != "uid" && !strings.HasPrefix(field, "attributes.")
	})
}

func (n *NATS) urlHasUser() bool {
	return slices.ContainsFunc(n.urls(), func(u *url.URL) bool { return u.User != nil })
}

// onLoopback reports whether all servers are on this machine.
func (n *NATS) onLoopback() bool {
	return !slices.ContainsFunc(n.urls(), func(u *url.URL) bool { return !onLoopback(u) })
}

func onLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
