package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/source"
	"github.com/kubebridge/bridge/internal/verify"
)

// VerifyOptions of Verify.
type VerifyOptions struct {
	Config *config.Config
	// Sink is the name of the sink whose stream is checked, or whose credentials are used with
	// From. "": the only one that stores events; with From, none.
	Sink string
	// From is the address of a stream, "" for that of the sink.
	From  string
	Stdin io.Reader
	// AgainstCluster compares the final state with the API server. What differs may be in flight
	// for Wait.
	AgainstCluster bool
	Wait           time.Duration
	// Patience is how long to wait for a broker.
	Patience time.Duration
	// Progress is called now and then, with the number of messages; nil for nobody.
	Progress func(messages int, p source.Progress)
}

// Verify reads a stream to its end and checks it. With an error the report, where there is one, is
// of what was read.
func Verify(ctx context.Context, o VerifyOptions) (*verify.Report, error) {
	cfg, err := sourceOf(&o)
	if err != nil {
		return nil, err
	}
	reader, err := source.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	v := &verification{
		VerifyOptions: o, reader: reader,
		checker: verify.New(verify.Config{Whole: reader.Whole}),
	}
	err = v.read(ctx)
	if err == nil && o.AgainstCluster {
		err = v.compare(ctx)
	}
	r := v.checker.Report()
	r.Source = shown(cfg.From)
	if err != nil {
		r.ReadToEnd, r.OK = false, false
	}
	return r, err
}

// shown is an address without credentials.
func shown(from string) string {
	scheme, rest, found := strings.Cut(from, "://")
	if at := strings.LastIndexByte(rest, '@'); found && at >= 0 {
		return scheme + "://" + rest[at+1:]
	}
	return from
}

// verification is one run of Verify.
type verification struct {
	VerifyOptions
	reader   source.Reader
	checker  *verify.Checker
	messages int
}

// progressEvery is how many messages are read between two calls of Progress.
const progressEvery = 1000

// read reads to the end that the source has now.
func (v *verification) read(ctx context.Context) error {
	for m, err := range v.reader.Messages(ctx) {
		if err != nil {
			return err
		}
		if m.Other != "" {
			v.checker.Other(m.Other)
		} else {
			v.checker.Feed(&m.Event, verify.Place{Lane: m.Lane, Offset: m.Offset})
		}
		if v.messages++; v.Progress != nil && v.messages%progressEvery == 0 {
			v.Progress(v.messages, v.reader.Progress())
		}
	}
	return nil
}

// compare lists what the stream is about, and reads on while something differs: it may be in
// flight.
func (v *verification) compare(ctx context.Context) error {
	const pause = 250 * time.Millisecond
	k := &v.Config.Kubernetes
	rc, _, err := kube.RESTConfig(k.Kubeconfig, k.Context, k.QPS, k.Burst)
	if err != nil {
		return err
	}
	resolver, err := kube.NewResolver(rc)
	if err != nil {
		return err
	}
	catalog, err := resolver.Discover(ctx)
	if err != nil {
		return err
	}
	comparison := v.checker.Compare()
	for _, t := range comparison.Targets() {
		if err := v.list(ctx, resolver, catalog, comparison, &t); err != nil {
			return err
		}
	}
	for until := time.Now().Add(v.Wait); ; {
		if err := v.read(ctx); err != nil {
			return err
		}
		if comparison.Pending() == 0 || time.Now().After(until) {
			return nil
		}
		if err := ratelimit.Sleep(ctx, pause); err != nil {
			return context.Cause(ctx)
		}
	}
}

// list compares one resource. One that the API server does not have any more has no objects.
func (v *verification) list(
	ctx context.Context, resolver *kube.Resolver, catalog *kube.Catalog,
	comparison *verify.Comparison, t *verify.Target,
) error {
	types, err := catalog.Resolve(kube.Selection{Names: []string{t.Resource}})
	if errors.Is(err, kube.ErrUnknown) {
		comparison.End(t, "")
		return nil
	}
	if err != nil {
		return err
	}
	options := kube.ListOptions{}
	if i := slices.IndexFunc(v.Config.Informers,
		func(inf config.Informer) bool { return inf.Name == t.Informer }); i >= 0 {
		inf := &v.Config.Informers[i]
		options.LabelSelector, options.FieldSelector = inf.LabelSelector, inf.FieldSelector
		if inf.NamespaceSelector != "" {
			comparison.Skip(t, "namespaceSelector")
			return nil
		}
	}
	first := "" // the earliest version of the lists
	for _, namespace := range orAll(t.Namespaces) {
		options.Namespace = namespace
		version, err := resolver.Identities(ctx, types[0], options, func(i kube.Identity) {
			comparison.Object(t, verify.Listed{
				Namespace: i.Namespace, Name: i.Name, UID: i.UID,
				Version: i.Version,
			})
		})
		if err != nil {
			return err
		}
		first = cmp.Or(first, version)
	}
	comparison.End(t, first)
	return nil
}

// sourceOf is where to read, with the credentials of the sink.
func sourceOf(o *VerifyOptions) (source.Config, error) {
	cfg := source.Config{From: o.From, Stdin: o.Stdin, Patience: o.Patience}
	if o.From != "" && o.Sink == "" {
		return cfg, nil
	}
	sink, err := sinkOf(o)
	if err != nil {
		return cfg, err
	}
	switch {
	case sink.NATS != nil:
		err = fromNATS(&cfg, sink.NATS, o.Config.Cluster)
	case sink.Kafka != nil:
		err = fromKafka(&cfg, sink.Kafka, o.Config.Cluster)
	default:
		err = errors.New("standard output is not stored; save it in a file and give that with " +
			"--from")
	}
	if err != nil {
		return cfg, fmt.Errorf("sink %s: %w", sink.Name, err)
	}
	return cfg, nil
}

// sinkOf is the sink of a name, or the only one that stores events.
func sinkOf(o *VerifyOptions) (*config.Sink, error) {
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
	case len(names) != 1:
		return nil, fmt.Errorf("say which stream to read: with --from, or with --sink, one of %s",
			strings.Join(names, ", "))
	}
	return found, nil
}

// pattern is what a template of streams or topics stands for.
func pattern(text, cluster string, encode func([]byte, string) []byte) (string, error) {
	t, err := event.ParseTemplate(text)
	if err != nil {
		return "", err
	}
	known := map[string]string{}
	if cluster != "" {
		known["cluster"] = cluster
	}
	return t.Pattern("*", known, encode), nil
}

func fromNATS(cfg *source.Config, n *config.NATS, cluster string) error {
	auth, err := natsAuth(n)
	if _, tlsErr := tlsConfig(n.TLS); err != nil || tlsErr != nil {
		return errors.Join(err, tlsErr)
	}
	cfg.NATS = nats.Config{Name: "bridge verify", Domain: n.Domain, Auth: auth, TLS: natsTLS(n.TLS)}
	if cfg.From != "" {
		return nil
	}
	scheme := "nats"
	var hosts []string
	for _, server := range n.Servers {
		address, err := url.Parse(string(server))
		if err != nil {
			return errors.New("servers: not a URL") // without the parser's error, which repeats it
		}
		host := address.Host
		if address.User != nil {
			host = address.User.String() + "@" + host
		}
		scheme, hosts = address.Scheme, append(hosts, host)
	}
	stream, err := pattern(n.Stream.Name, cluster, event.AppendSubjectToken)
	cfg.From = scheme + "://" + strings.Join(hosts, ",") + "/" + stream
	return err
}

func fromKafka(cfg *source.Config, k *config.Kafka, cluster string) error {
	encryption, tlsErr := tlsConfig(k.TLS)
	sasl, saslErr := kafkaSASL(k.SASL)
	if err := errors.Join(tlsErr, saslErr); err != nil {
		return err
	}
	cfg.Kafka = kafka.Config{ClientID: "bridge-verify", TLS: encryption, SASL: sasl}
	if cfg.From != "" {
		return nil
	}
	topic, err := pattern(k.Topic, cluster, event.AppendTopicPart)
	cfg.From = "kafka://" + strings.Join(k.Brokers, ",") + "/" + topic
	return err
}
