package config

import (
	"net"
	"slices"

	"github.com/kubebridge/bridge/internal/settings"
)

// Origins says of each key that was given where it is. Do not change it.
func (c *Config) Origins() settings.Origins { return c.origins }

// ProblemAt is a problem that was found after loading, with a key: it knows where the key is.
func (c *Config) ProblemAt(path, format string, args ...any) error {
	return c.origins.Problem(path, format, args...)
}

// ProblemsAt are the problems that an error is about a key: one, or none for nil.
func (c *Config) ProblemsAt(path string, err error) []error {
	if err == nil {
		return nil
	}
	return []error{c.ProblemAt(path, "%v", err)}
}

// Places returns the addresses that a sink connects to.
func (s *Sink) Places() (places []string) {
	switch {
	case s.NATS != nil:
		for _, u := range s.NATS.urls() {
			port := u.Port()
			if port == "" {
				port = "4222"
			}
			places = append(places, net.JoinHostPort(u.Hostname(), port))
		}
	case s.Kafka != nil:
		places = slices.Clone(s.Kafka.Brokers)
		if sasl := s.Kafka.SASL; sasl != nil && sasl.OAuth != nil {
			places = append(places, sasl.OAuth.TokenURL) // which gets the client's secret
		}
	case s.HTTP != nil:
		places = s.HTTP.places()
	case s.History != nil:
		places = []string{"history " + s.History.Dir}
	case s.Stdout != nil:
		places = []string{"standard output"}
	}
	return places
}

// Protection is how a connection is protected, the weakest first.
type Protection int

const (
	plainText Protection = iota
	anyCertificate
	checkedTLS
)

func (p Protection) String() string {
	return [...]string{"plain text", "TLS that takes any certificate", "TLS"}[p]
}

// Protection returns the least that the configuration of a sink ensures.
func (s *Sink) Protection() Protection {
	var section *TLS
	encrypted := true
	switch {
	case s.NATS != nil:
		section = s.NATS.TLS
		for _, u := range s.NATS.urls() {
			encrypted = encrypted && (section != nil || u.Scheme == "tls" || u.Scheme == "wss")
		}
	case s.Kafka != nil:
		section, encrypted = s.Kafka.TLS, s.Kafka.TLS != nil
	case s.HTTP != nil:
		section = s.HTTP.TLS
		for _, u := range s.HTTP.urls() {
			encrypted = encrypted && u.Scheme == "https"
		}
	default:
		return checkedTLS // it has no connection
	}
	switch {
	case !encrypted:
		return plainText
	case section != nil && section.InsecureSkipVerify:
		return anyCertificate
	}
	return checkedTLS
}
