package reflector

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Clock maps the versions of an API server to times, with bounds. etcd counts one revision for all
// resources, and a consistent list is of the newest one. So one probe (limit=1), asked at one time
// and answered with a version at another, proves for every resource of that etcd: all versions up
// to it were made before the answer, all later ones after the question. An event proves only the
// first half, since a watch may be late.
//
// Resources of another etcd, and those of aggregated API servers, have versions of their own. What
// shares an etcd is found out: a resource whose probe does not fit between two others is none of
// their etcd, and becomes the first of another one.
//
// Methods may be called concurrently.
type Clock struct {
	period time.Duration
	save   func([]byte) error
	log    *slog.Logger
	joined chan struct{} // has a value when a resource has joined that was not saved yet

	mu    sync.Mutex
	etcds []*etcdClock          // guarded by mu
	of    map[string]*etcdClock // guarded by mu: by resource
	// watched is when the clock was saved last, and isEarlier is set while that was in an earlier
	// run; guarded by mu.
	watched   time.Time
	isEarlier bool
}

type etcdClock struct {
	// members can be probed. saved are the resources that were, in this run or before.
	members []*prober
	saved   []string
	ticks   []Tick        // in the order of versions and of times
	asking  chan struct{} // closed when a running probe has ended; nil while none runs
}

// Tick is a version, and the times at which it was asked for and answered.
type Tick struct {
	Version  resource.Version `json:"version"`
	Asked    time.Time        `json:"asked"`
	Answered time.Time        `json:"answered"`
}

// ClockPeriod is the time between two probes of an etcd.
const ClockPeriod = 10 * time.Second

// maxTicks bounds those of an etcd: of more, every other one of the older half is dropped. Without
// a tick the bounds of versions around it are wider, and still true.
const maxTicks = 512

// savedTicks are those on disk: of some minutes, which is more than the settled state is behind,
// and the first one.
const savedTicks = 32

// savedClock is the form on disk.
type savedClock struct {
	At    time.Time   `json:"at"`
	Etcds []savedEtcd `json:"etcds"`
}

// savedEtcd is the form on disk.
type savedEtcd struct {
	Resources []string `json:"resources"`
	Ticks     []Tick   `json:"ticks"`
}

// NewClock continues what an earlier run has saved; nil for nothing. save is called with what is to
// be saved, every period.
func NewClock(saved []byte, save func([]byte) error, log *slog.Logger) *Clock {
	c := &Clock{period: ClockPeriod, save: save, log: log, joined: make(chan struct{}, 1), of: map[string]*etcdClock{}}
	var form savedClock
	if err := json.Unmarshal(saved, &form); err != nil {
		return c // nothing, or of another version of the bridge: bounds are wider
	}
	c.watched, c.isEarlier = form.At, true
	for _, e := range form.Etcds {
		clock := &etcdClock{saved: e.Resources, ticks: e.Ticks}
		c.etcds = append(c.etcds, clock)
		for _, name := range e.Resources {
			c.of[name] = clock
		}
	}
	return c
}

// Run probes each etcd every period, until ctx ends.
func (c *Clock) Run(ctx context.Context) error {
	timer := time.NewTicker(c.period)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-c.joined: // the run may die before the first period has passed
		case <-timer.C:
			for _, e := range c.all() {
				if _, err := c.tick(ctx, e); err != nil && ctx.Err() == nil {
					c.log.Debug("the version clock got no answer", "err", err)
				}
			}
		}
		if err := c.save(c.form()); err != nil {
			c.log.Debug("the version clock can't be saved", "err", err)
		}
	}
	return nil
}

func (c *Clock) all() []*etcdClock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.etcds)
}

func (c *Clock) form() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watched, c.isEarlier = time.Now().Round(0), false
	saved := savedClock{At: c.watched}
	for _, e := range c.etcds {
		ticks := e.ticks
		if n := len(ticks); n > savedTicks { // the first one bounds all that the others do not
			ticks = append([]Tick{ticks[0]}, ticks[n-savedTicks+1:]...)
		}
		saved.Etcds = append(saved.Etcds, savedEtcd{Resources: e.saved, Ticks: ticks})
	}
	form, err := json.Marshal(saved)
	if err != nil {
		return nil // times outside of the years that JSON has
	}
	return form
}

// Since returns the latest known time after which everything later than a version of a resource, as
// "deployments.apps", was made; false where none is known.
func (c *Clock) Since(name string, v resource.Version) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.of[name]
	if e == nil {
		return time.Time{}, false
	}
	for _, t := range slices.Backward(e.ticks) {
		if t.Version.NotNewer(v) {
			return t.Asked, true
		}
	}
	return time.Time{}, false
}

// Watched returns when the clock was saved last, and whether that was in an earlier run; the zero
// time for never. What runs a clock watches.
func (c *Clock) Watched() (at time.Time, isEarlier bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watched, c.isEarlier
}

// join makes a resource a part of the clock. t is what its own probe, or a list of everything, was
// answered with. Where an etcd can't be asked, nothing is known until the next time.
func (c *Clock) join(ctx context.Context, p *prober, t Tick) {
	if !t.Version.Ordered() {
		return
	}
	defer func() {
		select {
		case c.joined <- struct{}{}:
		default:
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, c.period)
	defer cancel()
	tried := map[*etcdClock]bool{}
	for {
		e := c.next(p, t, tried)
		if e == nil {
			return
		}
		tried[e] = true
		fits, err := c.fits(ctx, e, p, t)
		if err != nil {
			c.log.Debug("whose version clock a resource shares was not found out", "resource", p.resource,
				"err", err)
			return
		}
		if fits {
			c.mu.Lock()
			c.moveLocked(p, e)
			c.mu.Unlock()
			return
		}
	}
}

// next returns an etcd that was not tried, that of the resource before first. Where all were, the
// resource is the first of a new one, and next returns nil.
func (c *Clock) next(p *prober, t Tick, tried map[*etcdClock]bool) *etcdClock {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.of[p.resource]; e != nil && !tried[e] {
		return e
	}
	for _, e := range c.etcds {
		if !tried[e] {
			return e
		}
	}
	c.moveLocked(p, &etcdClock{ticks: []Tick{t}})
	return nil
}

// moveLocked makes a resource one of an etcd, and of no other.
func (c *Clock) moveLocked(p *prober, to *etcdClock) {
	isIt := func(m *prober) bool { return m.resource == p.resource }
	for _, e := range c.etcds {
		if e != to {
			e.saved = slices.DeleteFunc(e.saved, func(name string) bool { return name == p.resource })
			e.members = slices.DeleteFunc(e.members, isIt)
		}
	}
	c.etcds = slices.DeleteFunc(c.etcds, func(e *etcdClock) bool { return e != to && len(e.saved) == 0 })
	if !slices.Contains(c.etcds, to) {
		c.etcds = append(c.etcds, to)
	}
	c.of[p.resource] = to
	if !slices.Contains(to.saved, p.resource) {
		to.saved = append(to.saved, p.resource)
	}
	if !slices.Contains(to.members, p) {
		to.members = append(to.members, p)
	}
}

// leave takes a resource off those that can be probed.
func (c *Clock) leave(p *prober) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.etcds {
		e.members = slices.DeleteFunc(e.members, func(m *prober) bool { return m == p })
	}
}

// fits reports whether the answer to a resource's probe lies between those of an etcd before and
// after it. Where the etcd has no other resource to ask, only those before count.
func (c *Clock) fits(ctx context.Context, e *etcdClock, p *prober, t Tick) (bool, error) {
	c.mu.Lock()
	isOwn := slices.Contains(e.saved, p.resource)
	isAlone := !slices.ContainsFunc(e.members, func(m *prober) bool { return m.resource != p.resource })
	isBehind := false
	for _, tick := range slices.Backward(e.ticks) {
		if !tick.Answered.After(t.Asked) {
			isBehind = tick.Version.Newer(t.Version)
			break
		}
	}
	c.mu.Unlock()
	switch {
	case isAlone && isOwn:
		c.add(e, t) // a version that is lower begins the clock again
		return true, nil
	case isAlone || isBehind:
		return false, nil
	}
	after, err := c.tickSince(ctx, e, t.Answered)
	return err == nil && t.Version.NotNewer(after.Version), err
}

// tickSince returns a tick that was asked for after a time.
func (c *Clock) tickSince(ctx context.Context, e *etcdClock, after time.Time) (Tick, error) {
	for {
		c.mu.Lock()
		for _, t := range e.ticks {
			if !t.Asked.Before(after) {
				c.mu.Unlock()
				return t, nil
			}
		}
		c.mu.Unlock()
		if t, err := c.tick(ctx, e); err != nil || !t.Asked.Before(after) {
			return t, err
		}
	}
}

// tick probes an etcd, or waits for a probe that runs.
func (c *Clock) tick(ctx context.Context, e *etcdClock) (Tick, error) {
	c.mu.Lock()
	if running := e.asking; running != nil {
		c.mu.Unlock()
		select {
		case <-running:
			return c.newest(e), nil
		case <-ctx.Done():
			return Tick{}, context.Cause(ctx)
		}
	}
	now := time.Now()
	members := slices.DeleteFunc(slices.Clone(e.members), func(m *prober) bool {
		return now.Before(m.avoided)
	})
	ctx, cancel := context.WithTimeout(ctx, c.period)
	defer cancel()
	ended := make(chan struct{})
	e.asking = ended
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		e.asking = nil
		c.mu.Unlock()
		close(ended)
	}()
	err := errNobodyToAsk
	for _, m := range members {
		t := Tick{Asked: time.Now().Round(0)}
		if t.Version, err = m.ask(ctx); err == nil && t.Version.Ordered() {
			t.Answered = time.Now().Round(0)
			for _, m := range c.add(e, t) {
				m.rewound()
			}
			return t, nil
		}
		c.avoid(m, retryAfter(err))
	}
	return Tick{}, err
}

// avoid leaves a resource alone for as long as the API server has asked for.
func (c *Clock) avoid(p *prober, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := time.Now().Add(wait); wait > 0 && until.After(p.avoided) {
		p.avoided = until
	}
}

// avoided returns how long a resource is to be left alone.
func (c *Clock) avoided(p *prober) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(p.avoided)
}

func (c *Clock) newest(e *etcdClock) Tick {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(e.ticks) == 0 {
		return Tick{}
	}
	return e.ticks[len(e.ticks)-1]
}

// add adds a tick. One that contradicts those before shows that the history, or the wall clock,
// went back: then nothing is known of the time before. Where the history did, add returns the
// members.
func (c *Clock) add(e *etcdClock, t Tick) (rewound []*prober) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(e.ticks); n > 0 {
		last := &e.ticks[n-1]
		switch {
		case last.Version.Newer(t.Version):
			e.ticks, rewound = nil, slices.Clone(e.members)
		case t.Asked.Before(last.Asked):
			e.ticks = nil
		case last.Version == t.Version: // the later question and the earlier answer say more
			last.Asked = t.Asked
			return nil
		}
	}
	if e.ticks = append(e.ticks, t); len(e.ticks) > maxTicks {
		thinned := e.ticks[:0]
		for i, tick := range e.ticks {
			if i == 0 || i > maxTicks/2 || i%2 == 0 {
				thinned = append(thinned, tick)
			}
		}
		e.ticks = thinned
	}
	return rewound
}

// errNobodyToAsk: no resource of an etcd is read at the moment.
var errNobodyToAsk = errors.New("no resource to probe")

// joinClock gives the clock the newest version, as of a question.
func (r *Reflector) joinClock(ctx context.Context, version resource.Version, asked time.Time) {
	if r.cfg.Client.Clock == nil {
		return
	}
	r.isOfClock = true
	r.cfg.Client.Clock.join(ctx, r.prober, Tick{version, asked.Round(0), time.Now().Round(0)})
}

// prober asks for the newest version of a resource, beside the Reflector that reads it.
type prober struct {
	resource string
	ask      func(context.Context) (resource.Version, error)
	// rewound has the Reflector probe again. Its watch may be silent: the probe before it may have
	// been answered by the API server before a restore of etcd, and the watch by the one after it,
	// which takes a version that it has not reached.
	rewound func()
	avoided time.Time // guarded by Clock.mu: until then the API server wants to be left alone
}
