package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Publisher brings items to one sink. Its methods may be called concurrently, Run once.
type Publisher struct {
	cfg      Config // with defaults
	metrics  *metrics
	warnings warnings

	holds       *holds
	inDoubt     unansweredHolds
	readBackIDs *readBackSet

	capacity *capacity
	queue    *ratelimit.Queue[*lane]
	breaker  *ratelimit.Breaker
	bucket   *ratelimit.Bucket

	opened   chan struct{} // closed when the sink is open
	users    sinkUsers     // of those who use the sink from outside Run
	draining chan struct{} // a token: Drain waits, so retries do not
	order    sinks.Order   // set before opened is closed
	limits   sinks.Limits  // set before opened is closed; no zero values, within the bucket's bursts

	// mu is held for a few list operations at a time, never during a call of the sink, a settler or
	// the queue.
	mu        sync.Mutex
	lanes     map[string]*lane // guarded by mu: those with items
	ages      ages             // guarded by mu: all items
	unrouted  unroutedItems    // guarded by mu
	detaching []*detachment    // guarded by mu
}

// New checks the configuration. It does not touch the sink.
func New(cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	bucket, err := ratelimit.NewBucket(cfg.RateLimit)
	if err != nil {
		return nil, fmt.Errorf("publisher of sink %q: %w", cfg.Name, err)
	}
	p := &Publisher{
		cfg:         cfg,
		holds:       new(holds),
		readBackIDs: new(readBackSet),
		breaker:     ratelimit.NewBreaker(cfg.Retry.Initial, cfg.Retry.Max),
		bucket:      bucket,
		opened:      make(chan struct{}),
		users:       newSinkUsers(),
		draining:    make(chan struct{}, 1),
		lanes:       map[string]*lane{},
		unrouted:    newUnrouted(),
	}
	if r, ok := cfg.Sink.(sinks.ReadBacker); ok && !cfg.Forget {
		p.holds.sink, p.readBackIDs = r, newReadBackSet(cfg.Saved.ReadBackIDs)
	}
	p.capacity = newCapacity(cfg.MaxItems, cfg.MaxBytes, p.users.closed)
	p.queue = ratelimit.NewQueue(ratelimit.FullJitter(
		ratelimit.Exponential[*lane](cfg.Retry.Initial, cfg.Retry.Max)))
	p.metrics = newMetrics(cfg.Registerer, p)
	return p, nil
}

// Run opens the sink, publishes until ctx ends, and closes the sink. It returns nil after a stop by
// ctx, the sink's error when it can't be opened for a reason that the operator must remove, and an
// error of closing it.
func (p *Publisher) Run(ctx context.Context) error {
	if p.users.running.Swap(true) {
		return fmt.Errorf("publisher of sink %q: Run was called twice", p.cfg.Name)
	}
	err := p.open(ctx)
	if err == nil && ctx.Err() == nil {
		p.work(ctx)
	}
	p.users.close()
	p.queue.ShutDown() // stops its timer
	p.holds.close()
	if closeErr := p.cfg.Sink.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close sink %q: %w", p.cfg.Name, closeErr))
	}
	items, _ := p.capacity.load()
	p.cfg.Log.Info("publisher stopped", "unsettled", items, "cause", context.Cause(ctx))
	return err
}

// open opens the sink and reads back what it holds. It returns nil when ctx ends.
func (p *Publisher) open(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.cfg.Sink.Open, p.readBack} {
		if err := p.retryOpening(ctx, step); err != nil || ctx.Err() != nil {
			return err
		}
	}
	p.order, p.limits = p.cfg.Sink.Order(), p.batchLimits(p.cfg.Sink.Limits())
	p.progressed(time.Now())
	close(p.opened)
	p.cfg.Log.Info("sink is open")
	return nil
}

// retryOpening repeats a step of opening the sink while that may help. It returns nil when ctx
// ends.
func (p *Publisher) retryOpening(ctx context.Context, step func(context.Context) error) error {
	backoff := ratelimit.Backoff{Initial: p.cfg.Retry.Initial, Max: p.cfg.Retry.Max}
	for {
		err := step(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		p.failed(err)
		p.reportOpenPanic(err)
		if p.classify(ctx, err) == sinks.Refused && !p.cfg.Patient {
			return fmt.Errorf("open sink %q: %w", p.cfg.Name, err)
		}
		delay := backoff.Next()
		p.cfg.Log.Warn("sink can't be opened yet", "err", err, "next_attempt_in", delay.String())
		if ratelimit.SleepOr(ctx, delay, p.draining) != nil { // a drain does not wait
			return nil
		}
	}
}

// batchLimits returns the limits of one Publish call: the sink's, or the defaults, within the
// bursts of the rate limit.
func (p *Publisher) batchLimits(limits sinks.Limits) sinks.Limits {
	messages, bytes := p.bucket.Burst()
	return sinks.Limits{
		Messages:    min(cmp.Or(limits.Messages, 512), messages),
		Bytes:       min(cmp.Or(limits.Bytes, 900<<10), bytes),
		Concurrency: cmp.Or(limits.Concurrency, 4),
	}
}

// work runs the workers until ctx ends.
func (p *Publisher) work(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { p.retryRoutes(ctx) })
	running.Go(func() { p.inspect(ctx) })
	for range p.limits.Concurrency {
		running.Go(func() { (&worker{p: p}).run(ctx) })
	}
	running.Wait()
}

// Opened is closed when the sink was opened for the first time.
func (p *Publisher) Opened() <-chan struct{} { return p.opened }

// Drain waits until everything that was added is settled. It ends the current delays of retries,
// once, so that each gets another chance before ctx ends. It returns an error when ctx or Run ended
// with items left.
func (p *Publisher) Drain(ctx context.Context) error {
	p.queue.Flush()
	p.breaker.RetryNow()
	signal(p.draining)
	var err error
	select {
	case <-p.capacity.idle():
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.users.closed:
		err = ErrStopped
	}
	items, bytes := p.capacity.load()
	return fmt.Errorf("drain sink %q: %d items (%d bytes) are not settled: %w", p.cfg.Name, items,
		bytes, err)
}

// Pause sends nothing from now on; running calls of the sink continue. Added items wait, as while a
// broker is unavailable. A pause ends with the Publisher, or at the first Resume.
func (p *Publisher) Pause() { p.breaker.Hold(true) }

// Resume ends a Pause.
func (p *Publisher) Resume() { p.breaker.Hold(false) }

// Demand returns how many items the publisher can use now, those that it has included: none while
// an operator has paused the sink, one for a probe while the broker is unavailable, else any
// number. More may be added, and wait. changed is closed when the answer may be another.
func (p *Publisher) Demand() (items int, changed <-chan struct{}) { return p.breaker.Demand() }

// inspectEvery is how often the sink looks at its destinations. What is found there is to be
// reported within 20 seconds.
const inspectEvery = 5 * time.Second

// inspect lets the sink look at its destinations until ctx ends. OnLoss is called again while it
// fails.
func (p *Publisher) inspect(ctx context.Context) {
	sink, ok := p.cfg.Sink.(sinks.Inspector)
	if !ok {
		return
	}
	for round := int64(0); ratelimit.Sleep(ctx, inspectEvery) == nil; {
		losses, err := p.inspectOnce(ctx, sink)
		if err != nil {
			p.reportOpenPanic(err)
		}
		for _, loss := range losses {
			if round = cmp.Or(loss.Round, time.Now().UnixMilli()); loss.Reason == sinks.Unverified {
				continue
			}
			p.metrics.losses.With(loss.Reason).Inc()
			p.warnings.losses.Log(p.cfg.Log, slog.LevelError, "the sink's destination has lost what "+
				"it had acknowledged", "destination", loss.Destination, "reason", loss.Reason,
				"acknowledged", loss.Before, "ends_at", loss.Now)
		}
		if len(losses) > 0 {
			p.queue.Flush() // what waited for the destination need not wait longer
		}
		if round != 0 && (p.cfg.OnLoss == nil || p.cfg.OnLoss(ctx, round) == nil) {
			round = 0
		}
	}
}

func (p *Publisher) inspectOnce(
	ctx context.Context, sink sinks.Inspector,
) (losses []sinks.Loss, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.PublishTimeout)
	defer cancel()
	defer sinks.RecoverAnswer(&err)
	return sink.Inspect(ctx), nil
}
