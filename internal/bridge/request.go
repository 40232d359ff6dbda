package bridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
)

// ErrStopping is returned for requests to a bridge that is being stopped, or has ended.
var ErrStopping = errors.New("the bridge is stopping")

// request is work for the reconciler.
type request struct {
	do     func(ctx context.Context, f *reconciler) error
	result chan error // holds one
}

// fatalError ends the bridge: a change was begun that can be neither finished nor taken back.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// answer does the work. It returns an error that ends the bridge.
func (r *request) answer(ctx context.Context, f *reconciler) error {
	err := r.do(ctx, f)
	r.result <- err
	if fatal, ok := errors.AsType[*fatalError](err); ok {
		return fatal.err
	}
	return nil
}

// askReconciler lets the reconciler do something, after its current work, and returns the result.
// It waits for a bridge that is starting. When ctx ends after the reconciler has begun, it still
// waits: the caller has to know what the bridge is now.
func (b *Bridge) askReconciler(ctx context.Context, do func(context.Context, *reconciler) error) error {
	r := &request{do: do, result: make(chan error, 1)}
	select {
	case b.requests <- r:
	case <-b.ended:
		return ErrStopping
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return <-r.result
}

// progressInterval is how often an unfinished start is logged.
const progressInterval = 10 * time.Second

// startProgress logs how far the first lists are, and when they have ended; a cluster of many
// objects takes minutes.
type startProgress struct {
	informers func() []*informer.Informer
	onSynced  func() // called once, when all are in sync; may be nil
	log       *slog.Logger
}

// run returns when all informers are in sync, or ctx ends.
func (p *startProgress) run(ctx context.Context) error {
	began, tick := time.Now(), time.NewTicker(time.Second)
	defer tick.Stop()
	logged := began
	for {
		synced, resources, listed := p.populated()
		if synced == resources {
			p.log.Info("all resources are in sync with the API server", "resources", synced,
				"objects", listed, "took", time.Since(began).Round(time.Millisecond).String())
			if p.onSynced != nil {
				p.onSynced()
			}
			return nil
		}
		if time.Since(logged) >= progressInterval {
			logged = time.Now()
			p.log.Info("syncing with the API server", "resources", resources, "in_sync", synced,
				"objects", listed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// populated returns how many informers are in sync, of how many, and how many objects were listed.
func (p *startProgress) populated() (synced, resources, listed int) {
	units := p.informers()
	for _, u := range units {
		s := u.Status()
		listed += s.Listed
		if s.Synced {
			synced++
		}
	}
	return synced, len(units), listed
}

// Reason is why the bridge is not ready.
type Reason struct {
	// Component is "informer <name>/<resource>", "sink <name>", "namespaces" or "state".
	Component string `json:"component"`
	Message   string `json:"message"`
}

func (r Reason) String() string { return r.Component + ": " + r.Message }
