package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/kube"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// discovered is what the API server answered.
type discovered struct {
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
func (a *assembler) await(ctx context.Context, rc *rest.Config) (discovered, error) {
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

func (a *assembler) discover(ctx context.Context, rc *rest.Config) (d discovered, err error) {
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
