package streams

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// SourceOptions say which stream to read.
type SourceOptions struct {
	Config *config.Config
	// Client is the name that brokers show: "bridge verify".
	Client string
	// Sink is the name of the sink whose stream is read, or whose credentials are used with
	// From. "": the only one that stores events; with From, none.
	Sink string
	// From is the address of a stream, "" for that of the sink.
	From  string
	Stdin io.Reader
	// Patience is how long to wait for a broker.
	Patience time.Duration
}

// sourceOf returns where to read, with the credentials of the sink.
func sourceOf(o *SourceOptions) (source.Config, error) {
	cfg := source.Config{
		From: o.From, Stdin: o.Stdin, Client: o.Client, Patience: o.Patience,
	}
	if o.From != "" && o.Sink == "" {
		return cfg, nil
	}
	sink, err := sinkOf(o)
	if err != nil {
		return cfg, err
	}
	switch {
	case sink.NATS != nil:
		err = cfg.UseNATS(sink.NATS, o.Config.Cluster, o.Config.State.Dir)
	case sink.Kafka != nil:
		err = cfg.UseKafka(sink.Kafka, o.Config.Cluster)
	case sink.HTTP != nil:
		err = errors.New("an HTTP endpoint can't be asked for what it was sent; keep the events in a " +
			"stream too, or give --from")
	default:
		err = errors.New("standard output is not stored; save it in a file and give that with " +
			"--from")
	}
	if err != nil {
		return cfg, fmt.Errorf("sink %s: %w", sink.Name, err)
	}
	return cfg, nil
}

// sinkOf returns the sink of a name, or the only one that stores events, or the only one.
func sinkOf(o *SourceOptions) (*config.Sink, error) {
	var names []string
	var found *config.Sink
	for i := range o.Config.Sinks {
		s := &o.Config.Sinks[i]
		if s.Name == o.Sink {
			return s, nil
		}
		if s.NATS != nil || s.Kafka != nil {
			found, names = s, append(names, s.Name)
		}
	}
	switch {
	case o.Sink != "":
		return nil, fmt.Errorf("there is no sink %q; there are %s", o.Sink,
			strings.Join(names, ", "))
	case len(o.Config.Sinks) == 1:
		return &o.Config.Sinks[0], nil
	case len(names) == 0:
		return nil, errors.New("no sink stores events in a stream (nats, kafka): give --from")
	case len(names) != 1:
		return nil, fmt.Errorf("say which stream to read: with --from, or with --sink, one of %s",
			strings.Join(names, ", "))
	}
	return found, nil
}
