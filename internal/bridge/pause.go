package bridge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
)

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
