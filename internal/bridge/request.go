package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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

// kinds of parts that can be paused.
const (
	kindInformer = "informer"
	kindSink     = "sink"
)

// ErrUnknown is returned for the name of an informer or a sink that does not exist.
var ErrUnknown = informer.ErrUnknown

// pausedReason returns why a paused part is not ready.
func pausedReason(p *informer.Pause, kind, name string) string {
	return fmt.Sprintf("paused by %s since %s; 'bridge resume %s %s' ends it", p.By,
		p.Since.UTC().Format(time.RFC3339), kind, name)
}

// pausedParts are the informers and sinks that operators have paused. A pause ends with the
// process: a bridge that starts reads and sends everything.
type pausedParts struct {
	mu   sync.Mutex
	list map[string]*informer.Pause // guarded by mu; by kind and name
}

// find returns the pause of a part, nil when it is not paused.
func (p *pausedParts) find(kind, name string) *informer.Pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list[kind+" "+name]
}

// set records a pause, or with nil its end.
func (p *pausedParts) set(kind, name string, pause *informer.Pause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.list == nil {
		p.list = map[string]*informer.Pause{}
	}
	p.list[kind+" "+name] = pause
	if pause == nil {
		delete(p.list, kind+" "+name)
	}
}

// PauseInformer stops the reading of all informers of a section. What was read is sent. by is who
// asks.
func (b *Bridge) PauseInformer(ctx context.Context, name, by string) error {
	return b.askReconciler(ctx, func(_ context.Context, f *reconciler) error {
		pause := &informer.Pause{By: by, Since: time.Now()}
		return f.eachOf(name, pause, func(u *informer.Informer) { u.Reader().Pause() })
	})
}

// ResumeInformer ends a pause: reading continues from its position.
func (b *Bridge) ResumeInformer(ctx context.Context, name string) error {
	return b.askReconciler(ctx, func(_ context.Context, f *reconciler) error {
		return f.eachOf(name, nil, func(u *informer.Informer) { u.Reader().Resume() })
	})
}

func (r *reconciler) eachOf(name string, pause *informer.Pause, do func(*informer.Informer)) error {
	units := r.b.unitsOf(name)
	if len(units) == 0 && !r.b.knowsInformer(name) {
		return fmt.Errorf("informer %s: %w", name, ErrUnknown)
	}
	r.b.pauses.set(kindInformer, name, pause)
	for _, u := range units {
		do(u)
	}
	return nil
}

// unitsOf returns the informers of a section.
func (b *Bridge) unitsOf(name string) (units []*informer.Informer) {
	for _, u := range b.informers.all() {
		if u.Config().Informer == name {
			units = append(units, u)
		}
	}
	return units
}

// knowsInformer reports whether there is a section of this name, though none of its resources is
// served.
func (b *Bridge) knowsInformer(name string) bool {
	for _, u := range b.informers.removed() {
		if u.status.Informer == name {
			return true
		}
	}
	return false
}

// PauseSink sends nothing to a sink until it is resumed: its events stay pending, as in an outage.
// by is who asks.
func (b *Bridge) PauseSink(ctx context.Context, name, by string) error {
	return b.askReconciler(ctx, func(_ context.Context, f *reconciler) error {
		out := f.b.sinks.get(name)
		if out == nil {
			return fmt.Errorf("sink %s: %w", name, ErrUnknown)
		}
		f.b.pauses.set(kindSink, name, &informer.Pause{By: by, Since: time.Now()})
		out.publisher.Pause()
		return nil
	})
}

// ResumeSink ends a pause: pending events are sent, in order.
func (b *Bridge) ResumeSink(ctx context.Context, name string) error {
	return b.askReconciler(ctx, func(_ context.Context, f *reconciler) error {
		out := f.b.sinks.get(name)
		if out == nil {
			return fmt.Errorf("sink %s: %w", name, ErrUnknown)
		}
		f.b.pauses.set(kindSink, name, nil)
		out.publisher.Resume()
		return nil
	})
}
