package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/app/sinkmaker"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
)

// Live is what a check of a configuration against its surroundings has found.
type Live struct {
	Host   string // the API server
	Rights int    // that it was asked for
	// Warnings are what Warnings can't know without the cluster.
	Warnings []error
}

// CheckLive compares a configuration with the cluster and the brokers that it names, and changes
// neither. Its error has all problems, in the order of the file.
func CheckLive(ctx context.Context, c *config.Config, log *slog.Logger) (Live, error) {
	l := &liveCheck{config: c, log: log}
	err := l.run(ctx)
	return Live{Host: l.host, Rights: l.rights, Warnings: l.warnings}, err
}

// liveCheck compares a configuration with the cluster and the brokers that it names. It finds all
// problems before it gives up.
type liveCheck struct {
	config *config.Config
	log    *slog.Logger

	cluster string
	host    string
	catalog *kube.Catalog // nil when the API server can't be asked
	rights  int

	warnings []error

	mu       sync.Mutex
	problems []error // guarded by mu
}

// brokerTimeout bounds what the brokers of one sink are asked. It is longer than a client waits for
// one of them (10 s), which then says what it waited for, and asks the next.
const brokerTimeout = 25 * time.Second

func (l *liveCheck) add(path string, err error) { l.addAll(l.config.ProblemsAt(path, err)) }

func (l *liveCheck) addAll(problems []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, problems...)
}

// run asks everybody.
func (l *liveCheck) run(ctx context.Context) error {
	l.kubernetes(ctx)
	for i := range l.config.Sinks {
		l.sink(ctx, i)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(settings.InOrder(l.problems)...)
}

func (l *liveCheck) kubernetes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	k := &l.config.Kubernetes
	rc, contextCluster, err := kube.RESTConfig(k.Kubeconfig, k.Context, k.QPS, k.Burst)
	if err != nil {
		l.add("kubernetes", err)
		return
	}
	l.host, l.cluster = rc.Host, cmp.Or(l.config.Cluster, contextCluster)
	resolver, err := kube.NewResolver(rc)
	if err == nil {
		l.catalog, err = resolver.Discover(ctx)
	}
	if err != nil {
		l.add("kubernetes", err)
		return
	}
	if l.cluster == "" {
		if l.cluster, err = resolver.ClusterID(ctx); err == nil && l.cluster == "" {
			err = errors.New("the cluster has no name: set it; it is in the source of every event")
		}
		l.add("cluster", err)
	}
	list, problems := rights.Needed(l.config, l.catalog)
	l.problems = append(l.problems, problems...)
	l.askForRights(ctx, resolver, list)
	var selected [][]resource.Type
	for i := range l.config.Informers {
		// what is wrong with it is reported
		types, _ := l.catalog.Resolve(rights.Selection(&l.config.Informers[i]))
		selected = append(selected, types)
	}
	l.warnings = kindsServed(l.config, selected)
}

// askForRights asks for each right once, and reports a missing one at the first key that needs it.
func (l *liveCheck) askForRights(ctx context.Context, resolver *kube.Resolver, list []rights.Need) {
	const atOnce = 8
	var g errgroup.Group
	g.SetLimit(atOnce)
	seen := map[kube.Right]bool{}
	for _, n := range list {
		if seen[n.Right] {
			continue
		}
		seen[n.Right] = true
		g.Go(func() error {
			allowed, why, err := resolver.Allowed(ctx, n.Right)
			if err == nil && !allowed {
				l.add(cmp.Or(n.Path, "kubernetes"), notAllowed(n.Right, why))
			}
			return err
		})
	}
	l.rights = len(seen)
	l.add("kubernetes", g.Wait())
}

func notAllowed(right kube.Right, why string) error {
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Errorf("not allowed to %s%s; 'bridge rbac' prints the roles for the configuration",
		right, why)
}

// sink asks the broker of a sink.
func (l *liveCheck) sink(ctx context.Context, i int) {
	c := &l.config.Sinks[i]
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	maker := &sinkmaker.Maker{
		Cluster: cmp.Or(l.cluster, "unknown"), StateDir: l.config.State.Dir,
		Out: io.Discard, Log: l.log, Feeds: sinkmaker.NewFeeds(l.config),
	}
	err := maker.Check(ctx, c, func(template string) []string {
		return l.topics(c.Name,
			template)
	})
	l.addAll(sinkmaker.Problems(l.config, i, err))
}

// topics are those of a sink that can be known without an event: they depend on no object's
// namespace or name.
func (l *liveCheck) topics(sink, template string) []string {
	if l.catalog == nil || l.cluster == "" {
		return nil
	}
	topic, err := event.ParseTemplate(template)
	if err != nil {
		return nil // the configuration was checked
	}
	var names []string
	for i := range l.config.Informers {
		inf := &l.config.Informers[i]
		if !slices.ContainsFunc(inf.Sinks, func(b config.Binding) bool { return b.Name == sink }) {
			continue
		}
		types, _ := l.catalog.Resolve(rights.Selection(inf)) // what is wrong was reported before
		for _, t := range types {
			if name := topicOf(topic, l.cluster, inf.Name, t); name != "" &&
				!slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// topicOf is the topic of all objects of a type, "" when it depends on the object.
func topicOf(topic *event.Template, cluster, informer string, t resource.Type) string {
	const field = "{}" // no topic has it in its name
	name := topic.Pattern(field, map[string]string{
		"cluster": cluster, "informer": informer, "group": cmp.Or(t.Group,
			"core"), "version": t.Version, "resource": t.Resource, "kind": t.Kind,
	}, event.AppendTopicPart)
	if strings.Contains(name, field) {
		return ""
	}
	return name
}
