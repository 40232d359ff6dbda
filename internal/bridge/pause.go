package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// kinds of what can be paused.
const (
	kindInformer = "informer"
	kindSink     = "sink"
)

// ErrUnknown is returned for an informer or a sink that there is not.
var ErrUnknown = errors.New("there is none of this name")

// Pause says who has paused something, and since when.
type Pause struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// reason is why something that is paused is not ready.
func (p *Pause) reason(kind, name string) string {
	return fmt.Sprintf("paused by %s since %s; 'bridge resume %s %s' goes on", p.By, p.Since.UTC().Format(time.RFC3339), kind, name)
}

// pauses are what operators have paused. They end with the process: a bridge that starts reads and sends everything.
type pauses struct {
	mu   sync.Mutex
	list map[string]*Pause // guarded by mu; by kind and name
}

// of is the pause of something, nil when it is not paused.
func (p *pauses) of(kind, name string) *Pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list[kind+" "+name]
}

// set notes a pause, or with nil its end.
func (p *pauses) set(kind, name string, pause *Pause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.list == nil {
		p.list = map[string]*Pause{}
	}
	p.list[kind+" "+name] = pause
	if pause == nil {
		delete(p.list, kind+" "+name)
	}
}

// PauseInformer stops the reading of all units of an informer. What was read is sent. by is who asks for it.
func (b *Bridge) PauseInformer(ctx context.Context, name, by string) error {
	return b.do(ctx, func(_ context.Context, f *follower) error {
		return f.eachOf(name, &Pause{By: by, Since: time.Now()}, func(u *unit) { u.reflector.Pause() })
	})
}

// ResumeInformer ends a pause: reading goes on where it stood.
func (b *Bridge) ResumeInformer(ctx context.Context, name string) error {
	return b.do(ctx, func(_ context.Context, f *follower) error {
		return f.eachOf(name, nil, func(u *unit) { u.reflector.Resume() })
	})
}

func (f *follower) eachOf(name string, pause *Pause, do func(*unit)) error {
	units := f.of(name)
	if len(units) == 0 && !f.knowsInformer(name) {
		return fmt.Errorf("informer %s: %w", name, ErrUnknown)
	}
	f.pauses.set(kindInformer, name, pause)
	for _, u := range units {
		do(u)
	}
	return nil
}

// of are the units of an informer.
func (b *Bridge) of(name string) (units []*unit) {
	for _, u := range b.roster.all() {
		if u.cfg.Informer == name {
			units = append(units, u)
		}
	}
	return units
}

// knowsInformer says whether there is an informer, though none of its resources is served.
func (b *Bridge) knowsInformer(name string) bool {
	for _, u := range b.roster.lost() {
		if u.status.Informer == name {
			return true
		}
	}
	return false
}

// PauseSink sends nothing to a sink until it is resumed: what is for it waits, as in an outage. by is who asks for it.
func (b *Bridge) PauseSink(ctx context.Context, name, by string) error {
	return b.do(ctx, func(_ context.Context, f *follower) error {
		out := f.outlets.get(name)
		if out == nil {
			return fmt.Errorf("sink %s: %w", name, ErrUnknown)
		}
		f.pauses.set(kindSink, name, &Pause{By: by, Since: time.Now()})
		out.Pause()
		return nil
	})
}

// ResumeSink ends a pause: what has waited is sent, in order.
func (b *Bridge) ResumeSink(ctx context.Context, name string) error {
	return b.do(ctx, func(_ context.Context, f *follower) error {
		out := f.outlets.get(name)
		if out == nil {
			return fmt.Errorf("sink %s: %w", name, ErrUnknown)
		}
		f.pauses.set(kindSink, name, nil)
		out.Resume()
		return nil
	})
}
