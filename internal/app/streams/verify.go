package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks/source"
)

// VerifyOptions of Verify.
type VerifyOptions struct {
	SourceOptions
	// AgainstCluster compares the final state with the API server. What differs may be in flight
	// for Wait.
	AgainstCluster bool
	Wait           time.Duration
	// Kinds, Namespace and Since narrow what is checked, where they are given: to resources as
	// kubectl names them, to one namespace, to events since a time.
	Kinds     []string
	Namespace string
	Since     time.Time
	// History is compared with the stream, each with what the other reports to have without a
	// break. It is read before the stream; nil for none.
	History *query.Questions
	// Progress is called now and then, with the number of messages; may be nil.
	Progress func(messages int, p source.Progress)
}

// ErrNoKind is for a kind of which the stream has nothing.
var ErrNoKind = errors.New("the stream has no events of")

// Verify reads a stream to its end and checks it. With an error the report, where there is one, is
// of what was read.
func Verify(ctx context.Context, o VerifyOptions) (*verify.Report, error) {
	cfg, err := sourceOf(&o.SourceOptions)
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
		checker: verify.New(verify.Config{Whole: func() bool { return o.Since.IsZero() && reader.Whole() }}),
		found:   map[string]bool{}, wanted: map[string]bool{}, lanes: map[string]bool{},
	}
	if o.History != nil {
		if v.comparison, err = newComparison(o.History, v.checker); err != nil {
			return nil, err
		}
	}
	err = v.read(ctx)
	if err == nil && v.comparison != nil {
		err = v.compareCovered(ctx)
	}
	for _, kind := range o.Kinds {
		if err == nil && !v.found[kind] {
			return nil, fmt.Errorf("%w %q: want a resource as pods, deploy or deployments.apps", ErrNoKind, kind)
		}
	}
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

// shown returns an address without credentials.
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
	reader     source.Reader
	checker    *verify.Checker
	comparison *comparison // nil for none
	lanes      map[string]bool
	messages   int
	removed    int             // of the reader's, that the checker has
	found      map[string]bool // kinds of which there are events
	wanted     map[string]bool // by resource, of those that have come
}

// wantsResource reports whether the resource of an event is among the kinds.
func (v *verification) wantsResource(e *event.Event) bool {
	resource := strings.TrimSuffix(e.Resource+"."+e.Group, ".")
	wanted, known := v.wanted[resource]
	if known {
		return wanted
	}
	names := append(query.ShortNames(e.Group, e.Resource), e.Resource, resource, strings.ToLower(e.Kind))
	for _, kind := range v.Kinds {
		if slices.Contains(names, kind) {
			v.wanted[resource], v.found[kind] = true, true
		}
	}
	return v.wanted[resource]
}

func (v *verification) wants(e *event.Event) bool {
	if len(v.Kinds) > 0 && !v.wantsResource(e) {
		return false
	}
	if e.AboutInformer() {
		return true
	}
	return (v.Namespace == "" || e.Namespace == v.Namespace) && !e.Time.Before(v.Since)
}

// progressEvery is how many messages are read between two calls of Progress.
const progressEvery = 1000

// read reads to the end that the source has now.
func (v *verification) read(ctx context.Context) error {
	for m, err := range v.reader.Messages(ctx) {
		if err != nil {
			return err
		}
		if m.Damaged {
			v.checker.Unreadable(verify.Position{Lane: m.Lane, Offset: m.Offset}, m.Err)
		}
		if m.Other != "" {
			v.checker.Other(m.Other)
		} else if v.wants(&m.Event) {
			v.checker.Feed(&m.Event, verify.Position{Lane: m.Lane, Offset: m.Offset})
			if err := v.cover(m); err != nil {
				return err
			}
		}
		if v.messages++; v.Progress != nil && v.messages%progressEvery == 0 {
			v.Progress(v.messages, v.reader.Progress())
		}
	}
	for list := v.reader.Removed(); v.removed < len(list); v.removed++ {
		if r := list[v.removed]; r.Singly {
			v.checker.Removed(verify.Position{Lane: r.Lane, Offset: r.From}, r.To-r.From)
		}
	}
	return nil
}

// cover compares a message with the history.
func (v *verification) cover(m *source.Message) error {
	if v.comparison == nil {
		return nil
	}
	if !v.lanes[m.Lane] {
		v.lanes[m.Lane] = true
		v.comparison.begins(m)
	}
	return v.comparison.feed(m)
}

// compareCovered finds what the stream lacks of the history.
func (v *verification) compareCovered(ctx context.Context) error {
	isSparse, err := v.reader.Sparse(ctx)
	if err != nil {
		return err
	}
	return v.comparison.end(&v.VerifyOptions, v.reader.Whole(), isSparse, v.wants)
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
	if v.Namespace != "" && !types[0].Namespaced {
		comparison.Skip(t, "--namespace")
		return nil
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
	namespaces := t.Namespaces
	switch {
	case v.Namespace != "" && len(namespaces) > 0 && !slices.Contains(namespaces, v.Namespace):
		namespaces = nil // the informer does not have it
	case v.Namespace != "":
		namespaces = []string{v.Namespace}
	case len(namespaces) == 0:
		namespaces = []string{""} // all
	}
	for _, namespace := range namespaces {
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
