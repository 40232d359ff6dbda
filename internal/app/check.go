package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
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
	_, section := c.Section()
	remote, ok := section.(sinks.Remote)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	env := sinks.Env{
		Cluster: cmp.Or(l.cluster, "unknown"), StateDir: l.config.State.Dir,
		Out: io.Discard, Log: l.log.With("sink", c.Name),
	}
	newFeeds(l.config).addTo(&env, c.Name)
	err := remote.Check(ctx, c.Common(), &env,
		func(template string) []string { return l.topics(c.Name, template) })
	l.addAll(sinkProblems(l.config, i, err))
}

// topics returns the topics of a sink that can be known without an event: they depend on no
// object's namespace or name.
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

// topicOf returns the topic of all objects of a type, "" when it depends on the object.
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

// Warnings returns what a configuration may say and what is often not meant, each with its place in
// the file. `bridge validate` prints them and `bridge run` logs them.
func Warnings(c *config.Config) []error {
	return slices.Concat(ownKeys(c), kindsNamed(c), c.Warnings())
}

// kindsNamed warns of kinds with credentials that informers name. What `*` selects only the API
// server knows: see kindsServed.
func kindsNamed(c *config.Config) (list []error) {
	for i := range c.Informers {
		inf := &c.Informers[i]
		for _, name := range resource.UnredactedKinds() {
			plural, group, _ := strings.Cut(name, ".")
			if slices.Contains(inf.Resources, name) && !slices.Contains(inf.Exclude, name) {
				list = append(list, kindWarning(c, i, resource.Type{
					Group:    group,
					Resource: plural,
				})...)
			}
		}
	}
	return list
}

// kindsServed warns of kinds with credentials that the API server has and informers select by `*`.
func kindsServed(c *config.Config, selected [][]resource.Type) (list []error) {
	for i, types := range selected {
		for _, t := range types {
			if !slices.Contains(c.Informers[i].Resources, t.String()) {
				list = append(list, kindWarning(c, i, t)...)
			}
		}
	}
	return list
}

// kindWarning returns a warning of one kind, or none: where an informer says what becomes of the
// kind's credentials, or that Secrets are sent, its author has decided.
func kindWarning(c *config.Config, informer int, t resource.Type) []error {
	inf := &c.Informers[informer]
	places := resource.Unredacted(t)
	if len(places) == 0 || inf.Secrets == "send" || decided(inf, places) {
		return nil
	}
	return []error{c.ProblemAt(fmt.Sprintf("informers[%d].resources", informer),
		"%s often hold credentials (%s), and these are not redacted: name their paths in redact "+
			"or drop, or exclude the kind", t, listOf(places))}
}

// decided reports whether a path of redact or drop is about one of some places: it leads there, to
// something around it, or into it. A rule for another kind decides nothing.
func decided(inf *config.Informer, places []resource.Path) bool {
	return slices.ContainsFunc(slices.Concat(inf.Redact, inf.Drop), func(text string) bool {
		rule, err := resource.ParsePath(text)
		return err == nil && slices.ContainsFunc(places, rule.Overlaps)
	})
}

func listOf(places []resource.Path) string {
	texts := make([]string, len(places))
	for i, p := range places {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

// ownKeys warns where several processes, or several lives of one, would redact with keys of their
// own.
func ownKeys(c *config.Config) (list []error) {
	if c.Redaction.KeyFile != "" || !slices.ContainsFunc(c.Informers, mayRedact) {
		return nil
	}
	warn := func(is bool, path, who string) {
		if is {
			list = append(list, c.ProblemAt(path, "without redaction.keyFile %s: every redacted "+
				"value would look changed", who))
		}
	}
	warn(c.Standby.Enabled, "standby.enabled", "a replica that takes over has another "+
		"redaction key")
	warn(c.Shard != "", "shard", "each shard has another redaction key, and objects move between "+
		"them when there are more")
	stored := slices.ContainsFunc(c.Sinks, func(s config.Sink) bool { return s.Stdout == nil })
	warn(c.State.Mode == "memory" && stored, "state.mode", "each start has another redaction key")
	return list
}

// mayRedact reports whether an informer may meet objects of which it takes values out.
func mayRedact(inf config.Informer) bool {
	if len(inf.Redact) > 0 || inf.RedactEnv {
		return true
	}
	return inf.Secrets != "send" && slices.ContainsFunc(inf.Resources, func(name string) bool {
		return strings.Contains(name, "*") || name == "secrets" || name == "secret"
	})
}

func logWarnings(log *slog.Logger, list []error) {
	for _, warning := range list {
		log.Warn("the configuration may not be what is meant", "warning", warning.Error())
	}
}

// warnOfReaders warns of a state directory that other users of the machine may read.
func warnOfReaders(c *config.State, log *slog.Logger) {
	if c.Mode == "memory" {
		return
	}
	others := fs.FileMode(0o077)
	if kube.InPod() {
		others = 0o007 // the kubelet gives volumes to the pod's group
	}
	if info, err := os.Stat(c.Dir); err == nil && info.Mode().Perm()&others != 0 {
		log.Warn("other users may read the state directory, which holds objects: chmod 700",
			"dir", c.Dir, "mode", info.Mode().Perm().String())
	}
}
