package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// A flood of updates leaves stale bodies on disk: earlier states than were sent. They are refreshed
// when it is over, slowly: one request a second, a page of 500 objects or one by its name, of one
// informer after the other, and only while bodies are written as they come.
const (
	refreshPause = time.Second // between two requests
	// An informer's next pass comes after a time that doubles while passes refresh nothing.
	refreshAgain, refreshAgainMost = time.Minute, time.Hour
)

// errFlood ends a pass: updates come faster than bodies are written again.
var errFlood = errors.New("there is a flood of updates again")

// errPaused ends a pass: an operator wants no requests.
var errPaused = errors.New("the informer is paused")

// bodyRefresh is when the next pass of an informer is due, and its metrics.
type bodyRefresh struct {
	objects  *metric.Counter
	requests *metric.Counters
	// due is when the next pass may begin; wait is the time before it. Owned by the caller of
	// RefreshBodies.
	due  time.Time
	wait time.Duration
}

// RefreshBodies makes one pass over the stale bodies, if there are some and a pass is due, and
// returns when it has ended. It calls isQuiet before each request. Calls come one after another.
func (i *Informer) RefreshBodies(isQuiet func() bool) {
	if !i.refreshDue() {
		return
	}
	over, began := make(chan struct{}), time.Now()
	started := i.Go(func(ctx context.Context) {
		defer close(over)
		pass := &refreshPass{informer: i, pause: refreshPause, isQuiet: isQuiet}
		err := pass.run(ctx)
		i.refresh.passed(pass.done > 0, err)
		log := i.log.With("resource", i.cfg.Type.String(), "objects", pass.done, "requests",
			pass.requests,
			"took", time.Since(began).Round(time.Millisecond).String())
		switch {
		case errors.Is(err, errFlood), errors.Is(err, errPaused), ctx.Err() != nil:
			log.Debug("objects that a flood of updates has left behind on disk are brought up to date later",
				"cause", err)
		case err != nil:
			log.Warn("not all objects that a flood of updates has left behind on disk can be brought up "+
				"to date, trying again later", "err", err)
		default:
			log.Info("objects that a flood of updates had left behind on disk are up to date")
		}
	})
	if started {
		<-over
	}
}

func (i *Informer) refreshDue() bool {
	if i.indexer.StaleBodies().Count() == 0 || time.Now().Before(i.refresh.due) ||
		i.Draining() != NotDraining || i.Snapshots.busy.Load() {
		return false
	}
	r := i.reflector.Status()
	return r.Phase == reflector.Watching && r.LastError == "" && i.synced(&r)
}

// passed sets when the next pass may begin.
func (b *bodyRefresh) passed(progressed bool, err error) {
	switch {
	case errors.Is(err, errFlood):
		return // as soon as it is quiet again
	case progressed:
		b.wait = refreshAgain
	default:
		b.wait = min(max(2*b.wait, refreshAgain), refreshAgainMost)
	}
	b.due = time.Now().Add(b.wait)
}

func (b *bodyRefresh) asked(err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	b.requests.With(outcome).Inc()
}

// refreshNow refreshes all stale bodies. When it returns nil, an object that is still stale has
// changed since, and its change is in flight to the sinks.
func (i *Informer) refreshNow(ctx context.Context) error {
	// What the sinks have is what the objects are compared with.
	if err := i.stages.Log().Commit(); err != nil {
		return err
	}
	const pause = 200 * time.Millisecond
	return (&refreshPass{informer: i, pause: pause, isQuiet: func() bool { return true }}).run(ctx)
}

// refreshPass reads objects from the API server and writes those of exactly the settled version.
// The watch brings newer ones.
type refreshPass struct {
	informer *Informer
	pause    time.Duration // between two requests
	isQuiet  func() bool   // asked before each request

	read     []store.Body // not written yet
	bytes    int
	requests int
	done     int // objects that are up to date now
	unread   int // objects that could not be understood
}

const (
	// refreshBytes bounds what a pass holds in memory, beside one object more.
	refreshBytes = 4 << 20
	// refreshAtOnce is how many objects are asked for by name before they are written.
	refreshAtOnce = 100
	// refreshTries is how often one request is sent.
	refreshTries = 5
)

// run asks for each stale object by its name, or for pages of all, whichever takes fewer requests.
func (r *refreshPass) run(ctx context.Context) error {
	n := r.informer.indexer.StaleBodies().Count()
	if n == 0 {
		return nil
	}
	err := reflector.ErrNotByName
	if all := r.informer.Objects.Count(); all != nil && n <= *all/r.informer.reflector.PageSize()+1 {
		err = r.byName(ctx)
	}
	if errors.Is(err, reflector.ErrNotByName) {
		err = r.byPages(ctx)
	}
	if err == nil && r.unread > 0 {
		err = fmt.Errorf("%d objects could not be understood", r.unread)
	}
	return errors.Join(err, r.write())
}

func (r *refreshPass) byPages(ctx context.Context) error {
	for token := ""; ; {
		err := r.request(ctx, func() error {
			next, unread, err := r.informer.reflector.ReadPage(ctx, token, r.keepStale)
			r.unread += unread
			if err == nil {
				token = next
			}
			return err
		})
		if err = errors.Join(err, r.write()); err != nil || token == "" {
			return err
		}
	}
}

func (r *refreshPass) byName(ctx context.Context) error {
	for last := resource.Key(""); ; {
		keys, err := r.informer.indexer.StaleBodies().From(last, refreshAtOnce)
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, key := range keys {
			err := r.request(ctx, func() error {
				unread, err := r.informer.reflector.ReadObject(ctx, key, r.keepStale)
				r.unread += unread
				return err
			})
			if err != nil {
				return err
			}
		}
		if err := r.write(); err != nil {
			return err
		}
		last = keys[len(keys)-1]
	}
}

// request sends one request after the pause, and again where it fails.
func (r *refreshPass) request(ctx context.Context, send func() error) error {
	wait := r.pause
	if r.requests == 0 {
		wait = 0
	}
	for try := 1; ; try++ {
		if err := ratelimit.Sleep(ctx, wait); err != nil {
			return err
		}
		switch {
		case r.informer.reflector.Paused():
			return errPaused
		case !r.isQuiet():
			return errFlood
		}
		err := send()
		r.requests++
		r.informer.refresh.asked(err)
		if err == nil || try == refreshTries || ctx.Err() != nil ||
			errors.Is(err, reflector.ErrNotByName) {
			return err
		}
		wait = max(time.Duration(try)*time.Second, reflector.RetryAfter(err))
	}
}

// keepStale keeps an object whose body is stale, until it is written.
func (r *refreshPass) keepStale(obj *resource.Object) error {
	key := obj.Key()
	isStale, err := r.informer.indexer.StaleBodies().Has(key)
	if err != nil || !isStale {
		return err
	}
	r.read = append(r.read, store.Body{Key: key, Object: obj})
	if r.bytes += obj.Size(); r.bytes < refreshBytes {
		return nil
	}
	return r.write()
}

// write commits the objects that were read, where their version is still the settled one.
func (r *refreshPass) write() error {
	if len(r.read) == 0 {
		return nil
	}
	read := r.read
	r.read, r.bytes = nil, 0
	r.informer.stages.Log().RefreshBodies(read)
	if err := r.informer.stages.Log().Commit(); err != nil {
		return err
	}
	for _, body := range read {
		isStale, err := r.informer.indexer.StaleBodies().Has(body.Key)
		if err != nil {
			return err
		}
		if !isStale {
			r.done++
			r.informer.refresh.objects.Inc()
		}
	}
	return nil
}
