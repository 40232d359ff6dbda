package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// discoveryResult is what the API server answered.
type discoveryResult struct {
	resolver  *kube.Resolver
	catalog   *kube.Catalog
	clusterID string
	identify  func(context.Context) error // whether it is still that cluster
	types     [][]resource.Type           // by informer
}

// startTimeout bounds one attempt to ask the API server what there is.
const startTimeout = 30 * time.Second

// refusals is how long an API server may continue to refuse the credentials before that is taken
// for its last word: one that starts refuses everybody until it has read who is who, and who may do
// what.
const refusals = 15 * time.Second

// await asks until there is an answer, when the assembler waits. What only a change of the
// configuration can heal is an error at once.
func (a *assembler) await(ctx context.Context, rc *rest.Config) (discoveryResult, error) {
	began, refused := time.Now(), time.Time{}
	backoff := wait.Backoff{
		Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 6,
		Cap: 15 * time.Second,
	}
	for tries := 0; ; tries++ {
		found, err := a.discover(ctx, rc)
		if err == nil && tries > 0 {
			a.log.Info("the API server answers",
				"after", time.Since(began).Round(time.Millisecond).String())
		}
		if err == nil || a.waiting == nil || ctx.Err() != nil || !worthWaiting(err, &refused) {
			return found, err
		}
		a.waiting(err)
		delay := backoff.Step()
		a.log.Warn("can't start yet, trying again", "delay", delay.Round(time.Millisecond),
			"err", err)
		if ratelimit.Sleep(ctx, delay) != nil {
			return found, ctx.Err()
		}
	}
}

// worthWaiting reports whether an error may go away by itself. refused is since when the
// credentials have been refused, zero when they are not.
func worthWaiting(err error, refused *time.Time) bool {
	switch kube.Classify(err) {
	case kube.Unreachable, kube.Unavailable:
		*refused = time.Time{}
		return true
	case kube.Unauthenticated, kube.Forbidden:
		if refused.IsZero() {
			*refused = time.Now()
		}
		return time.Since(*refused) < refusals
	default:
		return false
	}
}

func (a *assembler) discover(ctx context.Context, rc *rest.Config) (d discoveryResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	resolver, err := kube.NewResolver(rc)
	if err != nil {
		return d, err
	}
	var starting error
	if a.waiting != nil {
		// asked before the rest: what it serves is only complete from then on
		starting = resolver.Ready(ctx)
	}
	catalog, err := resolver.Discover(ctx)
	if err != nil {
		return d, err
	}
	d.resolver, d.catalog = resolver, catalog
	for gv, err := range catalog.Unavailable() {
		a.log.Warn("part of the API is unavailable, its resources are not watched until it answers",
			"group_version", gv.String(), "err", err)
	}
	if d.clusterID, err = resolver.ClusterID(ctx); err != nil {
		return d, err
	}
	if d.clusterID == "" {
		a.log.Warn("the namespace kube-system can't be read: a state directory of another " +
			"cluster would not be noticed" +
			" (needs the right to get namespaces, name kube-system; 'bridge rbac' prints it)")
	}
	d.identify = func(ctx context.Context) error { return sameCluster(ctx, resolver, d.clusterID) }
	if d.types, err = a.resolve(catalog); err != nil {
		return d, errors.Join(err, starting)
	}
	return d, nil
}

// sameCluster asks whether the API server, after a failure, is still that of the cluster it was at
// the start.
func sameCluster(ctx context.Context, resolver *kube.Resolver, known string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	id, err := resolver.ClusterID(ctx)
	if err != nil || id == "" || known == "" || id == known {
		return err
	}
	return fmt.Errorf("%w: its namespace kube-system has uid %s, and had %s; if the cluster was "+
		"recreated, give it its own state.dir",
		reflector.ErrOtherCluster, id, known)
}

func (a *assembler) resolve(catalog *kube.Catalog) ([][]resource.Type, error) {
	var types [][]resource.Type
	var errs []error
	for i := range a.config.Informers {
		inf := &a.config.Informers[i]
		found, err := catalog.Resolve(rights.Selection(inf))
		if err == nil && len(found) == 0 {
			err = errors.New("selects nothing: everything in resources is excluded")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("informer %s: %w", inf.Name, err))
		}
		types = append(types, found)
	}
	return types, errors.Join(errs...)
}

// planner says what there is to watch, at the start and while the bridge runs.
type planner struct {
	informers  []config.Informer
	selections []kube.Selection // by informer; names mean what they meant at the start
	named      []map[string]bool
	templates  []informer.Config // by informer, without type and namespace
	resolver   *kube.Resolver
	redactor   *resource.Redactor
}

// newPlanner makes the planner of a configuration. The names of informers that are in the one
// before as they are, which may be nil, continue to mean what they mean there.
func newPlanner(
	c *config.Config, d discoveryResult, redactor *resource.Redactor, shard resource.Shard,
	before *planner,
) (*planner, error) {
	p := &planner{informers: c.Informers, resolver: d.resolver, redactor: redactor}
	for i := range c.Informers {
		inf := &c.Informers[i]
		template, err := unit(inf, redactor)
		if err != nil {
			return nil, fmt.Errorf("informer %s: %w", inf.Name, err)
		}
		template.Shard = shard
		askProgress(c, &template)
		p.templates = append(p.templates, template)
		if j := before.has(inf); j >= 0 {
			p.selections = append(p.selections, before.selections[j])
			p.named = append(p.named, before.named[j])
			continue
		}
		s := rights.Selection(inf)
		s.Names = d.catalog.Pin(s.Names)
		p.selections = append(p.selections, s)
		p.named = append(p.named, namedOnly(d.catalog, s))
	}
	return p, nil
}

// askProgress lets the stream of each history say what it is complete up to, where the
// configuration does not say how often.
func askProgress(c *config.Config, template *informer.Config) {
	for i := range template.Sinks {
		b := &template.Sinks[i]
		isHistory := slices.ContainsFunc(c.Sinks, func(s config.Sink) bool { return s.Name == b.Sink && s.History != nil })
		if isHistory && b.Progress == 0 {
			b.Progress = historyProgress
		}
	}
}

// historyProgress is about how often there is a bookmark.
const historyProgress = time.Minute

// same reports whether an informer is in the planner before as it is, and redacts with the same
// key.
func (p *planner) same(i int, before *planner) bool {
	j := before.has(&p.informers[i])
	return j >= 0 && p.templates[i].Redaction == before.templates[j].Redaction
}

// has returns the index of an informer that is there as it is, -1 for none.
func (p *planner) has(inf *config.Informer) int {
	if p == nil {
		return -1
	}
	return slices.IndexFunc(p.informers,
		func(other config.Informer) bool { return reflect.DeepEqual(other, *inf) })
}

// namedOnly returns the resources that a selection has by their names.
func namedOnly(catalog *kube.Catalog, s kube.Selection) map[string]bool {
	named := map[string]bool{}
	for _, name := range s.Names {
		if kube.IsWildcard(name) {
			continue
		}
		// it was resolved before, and what was wrong is reported
		types, _ := catalog.Resolve(kube.Selection{Names: []string{name}})
		for _, t := range types {
			named[t.String()] = true
		}
	}
	return named
}

// ask asks the API server. What it can't find is not in the plan: a name that was found at the
// start may be back later.
func (p *planner) ask(ctx context.Context) (bridge.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.resolver.Ready(ctx); err != nil && kube.Classify(err) != kube.Forbidden {
		return bridge.Plan{}, err // one that is just starting does not know all custom resources
	}
	catalog, err := p.resolver.Discover(ctx)
	if err != nil {
		return bridge.Plan{}, err
	}
	types := make([][]resource.Type, len(p.selections))
	for i, s := range p.selections {
		types[i], _ = catalog.Resolve(s)
	}
	return p.plan(catalog, types), nil
}

// plan makes the units, one for each resource of an informer in each of its namespaces.
func (p *planner) plan(catalog *kube.Catalog, types [][]resource.Type) bridge.Plan {
	var plan bridge.Plan
	for i := range p.informers {
		inf := &p.informers[i]
		for _, t := range types[i] {
			for _, namespace := range rights.Namespaces(inf) {
				u := p.templates[i]
				u.Type, u.Namespace, u.Named = t, namespace, p.named[i][t.String()]
				plan.Units = append(plan.Units, u)
			}
		}
	}
	if down := catalog.Unavailable(); len(down) > 0 {
		plan.Unknown = func(t resource.Type) bool {
			for gv := range down {
				if gv.Group == t.Group {
					return true
				}
			}
			return false
		}
	}
	return plan
}

// shardOf returns the share of the objects that this process has.
func shardOf(c *config.Config) (resource.Shard, error) {
	if c.Shard == "" {
		return resource.Shard{}, nil
	}
	count, auto := strings.CutPrefix(c.Shard, "auto/")
	if !auto {
		return resource.ParseShard(c.Shard)
	}
	host, err := os.Hostname()
	if err != nil {
		return resource.Shard{}, fmt.Errorf("shard %s: %w", c.Shard, err)
	}
	return shardOfHost(host, count, c.Standby.Enabled)
}

// shardOfHost returns the shard of the pod of a StatefulSet, whose name ends with its number. With
// replicas the numbers begin again behind the last shard. Without, two pods of one shard would both
// publish, so that is an error.
func shardOfHost(host, count string, replicas bool) (resource.Shard, error) {
	number := host[strings.LastIndexByte(host, '-')+1:]
	if replicas {
		number = roundRobin(number, count)
	}
	s, err := resource.ParseShard(number + "/" + count)
	if err == nil {
		return s, nil
	}
	want := "a number below " + count
	if replicas {
		want = "a number"
	}
	return s, fmt.Errorf("shard auto/%s: the name of this host, %q, does not end with %s, as "+
		"those of a StatefulSet's pods do", count, host, want)
}

// roundRobin returns a number modulo a count; what is none is left as it is.
func roundRobin(number, count string) string {
	n, err := strconv.ParseUint(number, 10, 31)
	of, countErr := strconv.ParseUint(count, 10, 31)
	if err != nil || countErr != nil || of == 0 {
		return number
	}
	return strconv.FormatUint(n%of, 10)
}
