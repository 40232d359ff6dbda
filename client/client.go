package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// forgetAfter is how long a bucket may be unreachable before it is read again from the beginning:
// the markers of deleted objects live for 24 hours only.
const forgetAfter = time.Hour

// Client reads a source once, for any number of informers.
type Client struct {
	source Source
	log    *slog.Logger

	// Of Run.
	read     readOffsets    // nil before the source was opened
	counts   map[string]int // of the partitions of each topic
	heard    time.Time      // when the source last answered
	catching bool           // what was there at the begin is still read

	mu sync.Mutex
	// closed and replaced with each change; guarded by mu
	changed     chan struct{}
	caughtUp    bool                                 // guarded by mu
	ended       error                                // why Run has ended, guarded by mu
	collections map[schema.GroupResource]*collection // guarded by mu
}

// Option of New.
type Option func(*Client)

// WithLog has the client log what it does about trouble.
func WithLog(log *slog.Logger) Option { return func(c *Client) { c.log = log } }

// New makes a client of a source. It reads nothing before Run.
func New(source Source, options ...Option) *Client {
	c := &Client{
		source: source, log: slog.New(slog.DiscardHandler), changed: make(chan struct{}),
		collections: map[schema.GroupResource]*collection{},
	}
	for _, option := range options {
		option(c)
	}
	return c
}

// Run reads the source for the informers until ctx ends. While the source can't be read it tries
// again, each second.
func (c *Client) Run(ctx context.Context) error {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = fmt.Errorf("%s: Run has ended: %w", c.source, context.Cause(ctx))
		c.wake()
	}()
	for ctx.Err() == nil {
		err := c.readAll(ctx)
		if ctx.Err() != nil {
			break
		}
		c.log.Warn("can't read the source, trying again", "source", c.source.String(), "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

// readAll reads from where it was, or from the beginning, until something fails.
func (c *Client) readAll(ctx context.Context) error {
	now, err := c.source.extents(ctx)
	if err != nil {
		return err
	}
	if c.isLost(now) {
		c.reset()
	}
	c.read.add(now)
	c.counts = map[string]int{}
	for p := range c.read {
		c.counts[p.topic]++
	}
	return c.source.read(ctx, c.read, now, func(m *message, isAtEnd bool) error {
		c.heard = time.Now()
		if m != nil {
			c.apply(m)
		}
		if c.catching && isAtEnd {
			c.catchUp()
		}
		return nil
	})
}

// isLost reports whether what was read says nothing of what the source has now.
func (c *Client) isLost(now map[partition]extent) bool {
	return c.read == nil || c.catching || time.Since(c.heard) > forgetAfter ||
		errors.Is(c.read.check(now, !c.source.isState), errLost)
}

// reset forgets everything. Informers list again when the source has been read.
func (c *Client) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.catching, c.caughtUp = readOffsets{}, true, false
	for _, co := range c.collections {
		co.reset()
	}
	c.wake()
}

// catchUp says that all that was there at the begin has been applied.
func (c *Client) catchUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.catching, c.caughtUp = false, true
	for _, co := range c.collections {
		co.settle(c.counts)
	}
	c.wake()
}

// wake lets everybody look again. c.mu is held.
func (c *Client) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// apply changes the state by a message.
func (c *Client) apply(m *message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.err != nil {
		c.log.Warn("a message is no event", "source", c.source.String(), "err", m.err)
		return
	}
	if m.removed != nil && c.source.isState {
		c.remove(m)
	}
	e := m.event
	if e == nil || e.Type() == TypeAttributed {
		return
	}
	gr := e.Resource()
	if gr.Resource == "" {
		return
	}
	co := c.collections[gr]
	if co == nil {
		co = newCollection(c.source.isState)
		c.collections[gr] = co
	}
	var err error
	if e.AboutObject() {
		err = co.apply(e, m)
	} else {
		co.applyAbout(e, m.partition, c.counts)
	}
	if err != nil {
		c.log.Warn("an event was not understood", "source", c.source.String(), "err", err)
	}
	if c.caughtUp {
		co.settle(c.counts)
		c.wake()
	}
}

// remove is for a key that somebody else has deleted, or whose delete was reported before.
func (c *Client) remove(m *message) {
	if co := c.collections[m.removed.resource]; co != nil {
		if o := co.objects[m.removed.key]; o != nil {
			co.remove(m.removed.key, o)
			c.wake()
		}
		return
	}
	if m.removed.resource.Resource != "" {
		return
	}
	for _, co := range c.collections {
		for key, o := range co.objects {
			if o.subject == m.subject {
				co.remove(key, o)
				c.wake()
			}
		}
	}
}

// UnknownResourceError is of a resource of which the source has nothing.
type UnknownResourceError struct {
	Source   string
	Resource schema.GroupResource
	// Has are the resources that the source has.
	Has []schema.GroupResource
}

func (e *UnknownResourceError) Error() string {
	names := make([]string, len(e.Has))
	for i, gr := range e.Has {
		names[i] = gr.String()
	}
	has := "it has nothing yet"
	if len(names) > 0 {
		has = "it has " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s has no %s: %s; add the resource to an informer of the bridge that feeds "+
		"it", e.Source, e.Resource, has)
}

// Resources returns what the source has, once everything that was there has been read.
func (c *Client) Resources(ctx context.Context) ([]schema.GroupResource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.await(ctx, func() bool { return c.caughtUp }); err != nil {
		return nil, err
	}
	return c.resources(), nil
}

func (c *Client) resources() []schema.GroupResource {
	var list []schema.GroupResource
	for gr, co := range c.collections {
		if len(co.units)+len(co.objects) > 0 {
			list = append(list, gr)
		}
	}
	slices.SortFunc(list, func(a, b schema.GroupResource) int {
		return strings.Compare(a.String(), b.String())
	})
	return list
}

// await waits for a condition. c.mu is held, and released meanwhile.
func (c *Client) await(ctx context.Context, isTrue func() bool) error {
	for !isTrue() {
		if c.ended != nil {
			return c.ended
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
