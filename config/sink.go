package config

import (
	"net"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
)

// Sink is one destination of events. A sink that is slow or unavailable delays no other. Exactly
// one of `nats`, `kafka`, `http`, `history` and `stdout` says what it is.
type Sink struct {
	// Name identifies the sink in informers, metrics, logs and in the state directory: renaming it
	// is a new sink. Lower-case letters, digits and dashes, beginning with a letter. Required.
	Name string `yaml:"name"`
	// NATS publishes to NATS JetStream, or to core NATS.
	NATS *NATS `yaml:"nats"`
	// Kafka publishes to Kafka, or to what speaks its protocol.
	Kafka *Kafka `yaml:"kafka"`
	// HTTP posts events to an endpoint.
	HTTP *HTTP `yaml:"http"`
	// History keeps every version of every object in a directory, which `bridge history`,
	// `bridge show` and others answer from.
	History *History `yaml:"history"`
	// Stdout prints a line per event on standard output; for a look, and for pipes.
	Stdout *Stdout `yaml:"stdout"`
	// RateLimit bounds how many events and bytes per second are sent.
	RateLimit RateLimit `yaml:"rateLimit"`
	// Retry is the backoff between attempts for an event, and between attempts to connect.
	Retry Retry `yaml:"retry"`
	// Encoding is the CloudEvents mode: `binary` (attributes as headers, the object as the
	// message), or `structured` (the whole event as one JSON document). Not with `stdout`, which
	// has its `format`, nor with `history`.
	Encoding string `yaml:"encoding" default:"binary" oneof:"binary structured"`
	// ReadBack makes the bridge read back, after a crash, what the broker holds since the last
	// checkpoint, so that nothing is sent a second time. It needs the right to read what it writes.
	// `false`: those events are sent again, with the same ids. Has no effect with core NATS, `http`
	// and `stdout`, which can't be read back, nor with `history`, which stores each event once.
	ReadBack bool `yaml:"readBack" default:"true"`
	// MaxInFlightBytes bounds the events in flight: those that the sink's client has, and the
	// broker has not acknowledged yet.
	MaxInFlightBytes Size `yaml:"maxInFlightBytes" default:"64MiB"`
	// DeadLetterWait is how long an event that the broker refuses permanently waits for the place
	// of its dead letters, where that is refused too (no right, no stream, full) while the broker
	// answers. Its object waits too, with Kafka its partition. Then the event goes into the folder
	// `undelivered` of the state directory, is counted, and what is behind it continues. 0: it
	// waits forever.
	DeadLetterWait time.Duration `yaml:"deadLetterWait" default:"10m"`
	// Oversize are the ways to send an event that is too large for the broker, as it would be
	// encoded, in the order in which they are tried. `trim`: without the last-applied annotation
	// and managedFields. `claim`: without its payload, which goes into the object store of
	// `nats.objects`, with a `dataref` that says where. `reference`: with the object's metadata in
	// place of the object. Each says so in the attribute `oversize`, with `originalsize` and
	// `originalsha256` of the payload, and is counted. What fits in none of them, and with an empty
	// list everything, goes to the dead letters.
	Oversize []string `yaml:"oversize" default:"trim,reference"`
}

// History keeps every version of every object in a directory. Feed it with `payload: object`, the
// default.
type History struct {
	// Dir is the directory, which one process writes to. Left out: the directory `history` in
	// `state.dir`.
	Dir string `yaml:"dir"`
	// Retention is how long versions are kept. Of an object that existed then, the last version
	// before is kept too, so that the state at that time is complete. 0: forever.
	Retention time.Duration `yaml:"retention" default:"720h"`
	// MaxBytes bounds the directory: when it is larger, the oldest versions go. 0: no bound but the
	// disk.
	MaxBytes Size `yaml:"maxBytes" default:"0"`
}

// Stdout prints a line per event on standard output.
type Stdout struct {
	// Format is `json`: structured CloudEvents; `short`: lines for people; or `auto`: short on a
	// terminal and JSON elsewhere.
	Format string `yaml:"format" default:"auto" oneof:"auto json short"`
}

// RateLimit bounds how many events and bytes per second are sent. What exceeds it waits; nothing is
// dropped.
type RateLimit struct {
	// PerSecond is the mean rate in events per second. 0: no limit.
	PerSecond float64 `yaml:"perSecond" default:"0"`
	// Burst is how many events may be sent at once after a pause. Needs `perSecond`. 0: as many as
	// one second's.
	Burst int `yaml:"burst" default:"0"`
	// BytesPerSecond is the mean rate in bytes of payload per second. 0: no limit.
	BytesPerSecond Size `yaml:"bytesPerSecond" default:"0"`
	// BurstBytes is how many bytes may be sent at once after a pause; an event that is larger
	// passes too, once all of it has been earned. Needs `bytesPerSecond`. 0: as many as one
	// second's.
	BurstBytes Size `yaml:"burstBytes" default:"0"`
}

// Retry is an exponential backoff with jitter. Nothing is ever given up for having been tried too
// often: only what the broker says it will never take becomes a dead letter.
type Retry struct {
	// Initial is the pause after the first failure; it doubles with each further one.
	Initial time.Duration `yaml:"initial" default:"100ms"`
	// Max is the longest pause. Not below `initial`.
	Max time.Duration `yaml:"max" default:"30s"`
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

// ReadOnce are the files of a sink that are read when it is made, and not again: what they hold is
// part of the configuration. Other credentials are read at each connection.
func (s *Sink) ReadOnce() []string {
	var files []string
	if s.NATS != nil {
		files = append(files, s.NATS.PasswordFile, s.NATS.TokenFile)
	}
	if k := s.Kafka; k != nil && k.SASL != nil {
		files = append(files, k.SASL.PasswordFile)
	}
	if k := s.Kafka; k != nil && k.TLS != nil {
		files = append(files, k.TLS.CAFile)
	}
	if h := s.HTTP; h != nil && h.TLS != nil {
		files = append(files, h.TLS.CAFile)
	}
	return slices.DeleteFunc(files, func(f string) bool { return f == "" })
}

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
