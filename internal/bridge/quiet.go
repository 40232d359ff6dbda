package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/reflector"
)

// When a flood of updates is over, what it has left behind on disk is brought up to date. That may take its time: one request a second, a page
// of 500 objects or one by its name, of one unit after the other, and only while bodies are written as they come.
const (
	// quietFor is how long no update may have left its body.
	quietFor = 10 * time.Second
	// quietPause is between two requests.
	quietPause = time.Second
	// A unit's next pass comes after a time that doubles while passes do not get on.
	quietAgain, quietAgainMost = time.Minute, time.Hour
)

// catching is what a unit knows of its passes.
type catching struct {
	objects  prometheus.Counter
	requests *prometheus.CounterVec
	// due is when the next pass may begin, and wait what it waits for then. Owned by keepUp.
	due  time.Time
	wait time.Duration
}

func (c *catching) asked(err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	c.requests.WithLabelValues(outcome).Inc()
}

// keepUp brings units up to date whenever it is quiet, until ctx ends.
func (b *Bridge) keepUp(ctx context.Context) error {
	tick := time.NewTicker(quietFor / 2)
	defer tick.Stop()
	left, since := b.cfg.DB.BodiesLeft(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := b.cfg.DB.BodiesLeft(); now != left {
			left, since = now, time.Now()
		}
		if time.Since(since) < quietFor || b.stateErr() != nil {
			continue
		}
		for _, u := range b.roster.all() {
			if u.isBehind() {
				u.catchUpQuietly(func() bool { return b.cfg.DB.BodiesLeft() == left })
			}
		}
	}
}

// isBehind says whether the unit is to be brought up to date now.
func (u *unit) isBehind() bool {
	if u.indexer.Behind() == 0 || time.Now().Before(u.catching.due) || u.leaving() != staying || u.isBusy() {
		return false
	}
	r := u.reflector.Status()
	return r.Phase == reflector.Watching && r.LastError == "" && u.synced(&r)
}

// catchUpQuietly makes one pass, and returns when it is over.
func (u *unit) catchUpQuietly(isQuiet func() bool) {
	over, began := make(chan struct{}), time.Now()
	started := u.startJob(func(ctx context.Context) {
		defer close(over)
		pass := &catchUp{unit: u, pause: quietPause, goOn: isQuiet}
		err := pass.run(ctx)
		u.catching.passed(pass.done > 0, err)
		log := u.log.With("resource", u.cfg.Type.String(), "objects", pass.done, "requests", pass.requests, "took", time.Since(began).Round(time.Millisecond).String())
		switch {
		case errors.Is(err, errNotQuiet), errors.Is(err, errPaused), ctx.Err() != nil:
			log.Debug("objects that a flood of updates has left behind on disk are brought up to date later", "cause", err)
		case err != nil:
			log.Warn("not all objects that a flood of updates has left behind on disk can be brought up to date, trying again later", "err", err)
		default:
			log.Info("objects that a flood of updates had left behind on disk are up to date")
		}
	})
	if started {
		<-over
	}
}

// passed notes when the next pass may begin.
func (c *catching) passed(gotOn bool, err error) {
	switch {
	case errors.Is(err, errNotQuiet):
		return // as soon as it is quiet again
	case gotOn:
		c.wait = quietAgain
	default:
		c.wait = min(max(2*c.wait, quietAgain), quietAgainMost)
	}
	c.due = time.Now().Add(c.wait)
}

// newCatching makes and registers a unit's.
func (u *unit) newCatching(reg prometheus.Registerer) {
	c, m := &u.catching, metric.With(reg)
	c.objects = m.Counter("bridge_catchup_objects_total",
		"Objects on disk that were brought up to date, of those that a flood of updates had left behind.")
	c.requests = m.Counters("bridge_catchup_requests_total",
		"Requests to the API server for objects that a flood of updates had left behind on disk, by outcome.",
		"outcome", "ok", "failed")
	m.GaugeFunc("bridge_catchup_behind_objects",
		"Objects of which the state directory has an earlier version than was sent, since a flood of updates left it there.",
		func() float64 { return float64(u.indexer.Behind()) })
}
