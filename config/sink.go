package config

import (
	"fmt"
	"iter"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/file"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/stdout"
)

// Sink is one destination of events. A sink that is slow or unavailable delays no other. Exactly
// one section, such as `nats`, says what it is.
type Sink struct {
	// Name identifies the sink in informers, metrics, logs and in the state directory: renaming it
	// is a new sink. Lower-case letters, digits and dashes, beginning with a letter. Required.
	Name string `yaml:"name"`
	// NATS publishes to NATS JetStream, or to core NATS.
	NATS *nats.Config `yaml:"nats"`
	// Kafka publishes to Kafka, or to what speaks its protocol.
	Kafka *kafka.Config `yaml:"kafka"`
	// HTTP posts events to an endpoint.
	HTTP *http.Config `yaml:"http"`
	// History keeps every version of every object in a directory, which `bridge history`,
	// `bridge show` and others answer from.
	History *history.Config `yaml:"history"`
	// Stdout prints a line per event on standard output; for a look, and for pipes.
	Stdout *stdout.Config `yaml:"stdout"`
	// File appends a line per event to a file, and rotates it.
	File *file.Config `yaml:"file"`
	// RateLimit bounds how many events and bytes per second are sent.
	RateLimit RateLimit `yaml:"rateLimit"`
	// Retry is the backoff between attempts for an event, and between attempts to connect.
	Retry Retry `yaml:"retry"`
	// Encoding is the CloudEvents mode: `binary` (attributes as headers, the object as the
	// message), or `structured` (the whole event as one JSON document). Or it is `flat`: a JSON
	// record for tables, in which each attribute is a column and the object a text. Not with
	// `stdout` and `file`, which have `format`, nor with `history`.
	Encoding string `yaml:"encoding" default:"binary" oneof:"binary structured flat"`
	// ReadBack makes the bridge read back, after a crash, what the broker holds since the last
	// checkpoint, so that nothing is sent a second time. It needs the right to read what it writes.
	// `false`: those events are sent again, with the same ids. Has no effect with sinks that can't
	// be read back, such as core NATS, `http` and `stdout`, nor with `history`, which stores each
	// event once.
	ReadBack bool `yaml:"readBack" default:"true"`
	// MaxInFlightBytes bounds the events in flight: those that the sink's client has, and the
	// broker has not acknowledged yet.
	MaxInFlightBytes settings.Size `yaml:"maxInFlightBytes" default:"64MiB"`
	// DeadLetterWait is how long an event that the broker refuses permanently waits for the place
	// of its dead letters, where that is refused too (no right, no stream, full) while the broker
	// answers. Its object waits too, with Kafka its partition. Then the event goes into the folder
	// `undelivered` of the state directory, is counted, and what is behind it continues. 0: it
	// waits forever.
	DeadLetterWait time.Duration `yaml:"deadLetterWait" default:"10m"`
	// MaxSize bounds the payload of an event, below the broker's own limit; a larger one is too
	// large, as for a function with small requests. 0: no bound.
	MaxSize settings.Size `yaml:"maxSize" default:"0"`
	// Oversize are the ways to send an event that is too large for the broker, as it would be
	// encoded, in the order in which they are tried. `trim`: without the last-applied annotation
	// and managedFields. `claim`: without its payload, which goes into the object store of
	// `nats.objects`, with a `dataref` that says where. `reference`: with the object's metadata in
	// place of the object. Each says so in the attribute `oversize`, with `originalsize` and
	// `originalsha256` of the payload, and is counted. What fits in none of them, and with an empty
	// list everything, goes to the dead letters.
	Oversize []string `yaml:"oversize" default:"trim,reference"`
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
	BytesPerSecond settings.Size `yaml:"bytesPerSecond" default:"0"`
	// BurstBytes is how many bytes may be sent at once after a pause; an event that is larger
	// passes too, once all of it has been earned. Needs `bytesPerSecond`. 0: as many as one
	// second's.
	BurstBytes settings.Size `yaml:"burstBytes" default:"0"`
}

// Retry is an exponential backoff with jitter. Without `maxAttempts` and `maxAge` nothing is given
// up for having been tried too often: only what the broker says it will never take becomes a dead
// letter. What is given up becomes one too, with the last error as its reason, and the object's
// next event is sent; it may have been stored too, where an answer was lost. Time without a
// connection does not count. An endpoint, stream or partition that fails for every event has every
// event given up: let `maxAge` be longer than its repair takes.
type Retry struct {
	// Initial is the pause after the first failure; it doubles with each further one.
	Initial time.Duration `yaml:"initial" default:"100ms"`
	// Max is the longest pause. Not below `initial`.
	Max time.Duration `yaml:"max" default:"30s"`
	// MaxAttempts is how often an event fails until it is given up, counted since the bridge's
	// start. With Kafka an attempt takes 30 seconds, and is about a partition. 0: no bound. Not
	// with `history`, `file` and `stdout`.
	MaxAttempts int `yaml:"maxAttempts" default:"0"`
	// MaxAge is how long after its first failure an event that still fails is given up. 0: no
	// bound. Not with `history`, `file` and `stdout`.
	MaxAge time.Duration `yaml:"maxAge" default:"0"`
}

// Section returns the section that says what the sink is, and its key; nil for none.
func (s *Sink) Section() (key string, section sinks.Section) {
	for key, section := range s.sections() {
		if section != nil {
			return key, section
		}
	}
	return "", nil
}

// sections are all kinds of sinks by their keys, in the order of the fields. The section of a kind
// that is not given is nil.
func (s *Sink) sections() iter.Seq2[string, sinks.Section] {
	return func(yield func(string, sinks.Section) bool) {
		v := reflect.ValueOf(s).Elem()
		for _, f := range settings.Fields(v.Type()) {
			section, ok := reflect.TypeAssert[sinks.Section](v.Field(f.Index))
			if !ok {
				continue
			}
			if v.Field(f.Index).IsNil() {
				section = nil
			}
			if !yield(f.Key, section) {
				return
			}
		}
	}
}

// remote returns the section of a sink with a connection; nil for any other.
func (s *Sink) remote() sinks.Remote {
	_, section := s.Section()
	remote, _ := section.(sinks.Remote)
	return remote
}

// Common is what the sink has beside its section.
func (s *Sink) Common() sinks.Common {
	return sinks.Common{Name: s.Name, Encoding: s.Encoding}
}

// HistoryDir is where a bridge with this configuration keeps its history: that of its first sink of
// that kind, or where such a sink would keep one.
func (c *Config) HistoryDir() string {
	for i := range c.Sinks {
		if h := c.Sinks[i].History; h != nil && h.Dir != "" {
			return h.Dir
		}
	}
	return history.DefaultDir(c.State.Dir)
}

// ReadOnce are the files of a sink that are read when it is made, and not again: what they hold is
// part of the configuration. Other credentials are read at each connection.
func (s *Sink) ReadOnce() []string {
	remote := s.remote()
	if remote == nil {
		return nil
	}
	return slices.DeleteFunc(remote.ReadOnce(), func(file string) bool { return file == "" })
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
func (s *Sink) Places() []string {
	_, section := s.Section()
	if section == nil {
		return nil
	}
	return section.Places()
}

// Protection returns the least that the configuration of a sink ensures.
func (s *Sink) Protection() sinks.Protection {
	if remote := s.remote(); remote != nil {
		return remote.Protection()
	}
	return sinks.CheckedTLS // it has no connection
}

// files returns the files with credentials that a sink names, by key, such as "http.tokenFile", and
// one text for how the server's certificate is checked.
func (s *Sink) files() (credentials map[string]string, certificates string) {
	credentials = map[string]string{}
	key, section := s.Section()
	if section == nil {
		return credentials, ""
	}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if !v.IsValid() {
			return // the section is not there
		}
		for _, f := range settings.Fields(v.Type()) {
			value, at := v.Field(f.Index), settings.Join(path, f.Key)
			switch {
			case f.IsSection:
				walk(value, at)
			case value.Kind() != reflect.String || value.String() == "":
			case f.Key == "caFile" || f.Key == "serverName":
				certificates += fmt.Sprintf("%s=%q ", f.Key, value)
			case strings.HasSuffix(f.Key, "File"):
				credentials[at] = filepath.Clean(value.String())
			}
		}
	}
	walk(reflect.ValueOf(section), key)
	return credentials, certificates
}

// Warnings returns what a person may not have meant, as Problems: a bridge runs with it all the
// same.
func (c *Config) Warnings() (list []error) {
	ps := &settings.Report{Origins: c.origins}
	for i := range c.Sinks {
		key, _ := c.Sinks[i].Section()
		if remote := c.Sinks[i].remote(); remote != nil {
			remote.Warn(ps, fmt.Sprintf("sinks[%d].%s", i, key))
		}
	}
	for _, p := range ps.List() {
		list = append(list, p)
	}
	return list
}
