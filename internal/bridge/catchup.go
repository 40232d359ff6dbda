package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// catchUp is one pass over the objects of a unit of which a flood of updates has left an earlier state on disk: they are read from the API
// server, and what is of exactly the version that was settled is written. What is newer there comes by the watch.
type catchUp struct {
	*unit
	pause time.Duration // between two requests
	goOn  func() bool   // asked before each request

	read     []store.Body // not written yet
	bytes    int
	requests int
	done     int // objects that are up to date now
	unread   int // objects that could not be understood
}

const (
	// catchUpBytes bounds what a pass holds in memory, beside one object more.
	catchUpBytes = 4 << 20
	// catchUpAtOnce is how many objects are looked for by name before they are written.
	catchUpAtOnce = 100
	// catchUpTries is how often one request is sent.
	catchUpTries = 5
)

// errNotQuiet ends a pass: updates come faster than bodies are written again.
var errNotQuiet = errors.New("there is a flood of updates again")

// errPaused ends a pass: an operator wants no requests.
var errPaused = errors.New("the informer is paused")

// run asks for what is behind: for each object by its name, or for pages of all, whichever takes fewer requests.
func (c *catchUp) run(ctx context.Context) error {
	n := c.indexer.Behind()
	if n == 0 {
		return nil
	}
	err := reflector.ErrNotByName
	if all := c.objects.count(c.indexer.Objects); all != nil && n <= *all/c.reflector.PageSize()+1 {
		err = c.byName(ctx)
	}
	if errors.Is(err, reflector.ErrNotByName) {
		err = c.byPages(ctx)
	}
	if err == nil && c.unread > 0 {
		err = fmt.Errorf("%d objects could not be understood", c.unread)
	}
	return errors.Join(err, c.write())
}

func (c *catchUp) byPages(ctx context.Context) error {
	for token := ""; ; {
		err := c.ask(ctx, func() error {
			next, unread, err := c.reflector.LookPage(ctx, token, c.take)
			c.unread += unread
			if err == nil {
				token = next
			}
			return err
		})
		if err = errors.Join(err, c.write()); err != nil || token == "" {
			return err
		}
	}
}

func (c *catchUp) byName(ctx context.Context) error {
	for last := resource.Key(""); ; {
		keys, err := c.indexer.BehindFrom(last, catchUpAtOnce)
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, key := range keys {
			err := c.ask(ctx, func() error {
				unread, err := c.reflector.LookFor(ctx, key, c.take)
				c.unread += unread
				return err
			})
			if err != nil {
				return err
			}
		}
		if err := c.write(); err != nil {
			return err
		}
		last = keys[len(keys)-1]
	}
}

// ask sends one request, again where it fails, and not before it is its turn.
func (c *catchUp) ask(ctx context.Context, request func() error) error {
	wait := c.pause
	if c.requests == 0 {
		wait = 0
	}
	for try := 1; ; try++ {
		if err := ratelimit.Sleep(ctx, wait); err != nil {
			return err
		}
		switch {
		case c.reflector.Paused():
			return errPaused
		case !c.goOn():
			return errNotQuiet
		}
		err := request()
		c.requests++
		c.catching.asked(err)
		if err == nil || try == catchUpTries || ctx.Err() != nil || errors.Is(err, reflector.ErrNotByName) {
			return err
		}
		wait = max(time.Duration(try)*time.Second, reflector.RetryAfter(err))
	}
}

// take keeps an object that is behind, until it is written.
func (c *catchUp) take(obj *resource.Object) error {
	key := obj.Key()
	wanted, err := c.indexer.IsBehind(key)
	if err != nil || !wanted {
		return err
	}
	c.read = append(c.read, store.Body{Key: key, Object: obj})
	if c.bytes += obj.Size(); c.bytes < catchUpBytes {
		return nil
	}
	return c.write()
}

// write commits what was read, as far as it is still what was settled.
func (c *catchUp) write() error {
	if len(c.read) == 0 {
		return nil
	}
	read := c.read
	c.read, c.bytes = nil, 0
	c.informer.Log().CatchUp(read)
	if err := c.informer.Log().Commit(); err != nil {
		return err
	}
	for _, body := range read {
		isBehind, err := c.indexer.IsBehind(body.Key)
		if err != nil {
			return err
		}
		if !isBehind {
			c.done++
			c.catching.objects.Inc()
		}
	}
	return nil
}

// complete brings the unit's objects on disk up to date, for one who waits for it. When it returns nil, what is behind still has changed since it
// was called, and its change is on its way to the sinks.
func (u *unit) complete(ctx context.Context) error {
	if err := u.informer.Log().Commit(); err != nil { // so that what the sinks have is what the objects are compared with
		return err
	}
	const pause = 200 * time.Millisecond
	return (&catchUp{unit: u, pause: pause, goOn: func() bool { return true }}).run(ctx)
}
