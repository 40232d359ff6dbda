package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/breaker"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// ErrStopped is returned by Add and Drain when Run has ended.
var ErrStopped = errors.New("publisher has stopped")

// Config of a Publisher. Zero values mean the documented default.
type Config struct {
	// Sink is opened and closed by Run. Required.
	Sink sinks.Sink
	// Name of the sink, for logs and errors.
	Name string
	// MaxItems and MaxBytes bound what is queued and in flight, over all adders; default 16,384
	// items and 64 MiB. An item counts its payload and 768 bytes; one that is larger than MaxBytes
	// passes alone.
	MaxItems int
	MaxBytes int
	// Retry spaces attempts: of one lane, with full jitter; of opening the sink, and of the whole
	// sink while its broker can't be reached, with half of it.
	Retry Retry
	// PublishTimeout ends a call of the sink that does not answer; its messages are sent again.
	// Default 30 s.
	PublishTimeout time.Duration
	// RateLimit holds the sink to a rate. A batch is never larger than its bursts.
	RateLimit ratelimit.BucketConfig
	// Oversize are the ways to make an event fit that is too large for the broker, in the order in
	// which they are tried. What fits by none of them goes to the dead letters. Only with a sink
	// that knows its broker's limit (sinks.Sizer). Default: Trim, then Reference.
	Oversize []Oversize
	// Patient keeps trying to open a sink whatever the reason is for which it can't be opened. Else
	// Run returns one that only an operator can remove.
	Patient bool
	// OnOpenError is called by Run for every failed attempt to open the sink. May be nil.
	OnOpenError func(error)
	// OnSettle is called with items that are settled, in their order for each object, before their
	// Settlers get them back: for those who look on. It is on the road, so it must return at once,
	// and may keep neither the slice, the items nor their events. nil for nobody.
	OnSettle func(settled []*Item)
	// Saved is what the last checkpoint of an earlier process has. What the sink holds behind that
	// position is not sent again.
	Saved Saved
	// Gate is asked before and after each call that stores something; while it gives an error
	// nothing is sent, and what was sent counts as not answered. Its error is logged. It is called
	// often, from several goroutines, and must not block. nil: always open.
	Gate func() error
	// Keep is the last resort for events that the sink has refused and that have no place, or a
	// place that refuses them too: it keeps them elsewhere, and returns nil when they will be there
	// after a crash; then they are settled. deadLetter is why the place did not take it. It is
	// called from several goroutines, and again after an error; but where it is the last resort and
	// its error is ErrNoRoom, the event is lost. nil: without a place such an event is lost, and
	// its place is asked forever.
	Keep func(e *event.Event, refused, deadLetter error, attempts int) error
	// DeadLetterWait is how long the place of dead letters is asked, while the broker is there,
	// before an event is kept; 0 forever.
	DeadLetterWait time.Duration
	// Forget sends everything again that the checkpoint does not know of, even where the sink could
	// tell what it holds.
	Forget bool
	// Log defaults to none.
	Log *slog.Logger
	// Registerer of the metrics; nil for none. Several publishers need one each that adds a label.
	Registerer prometheus.Registerer
}

// Retry is an exponential backoff.
type Retry struct {
	Initial time.Duration // first delay; default 100 ms
	Max     time.Duration // longest delay; default 30 s
}

// withDefaults gives what zero values mean.
func (c Config) withDefaults() Config {
	c.MaxItems = cmp.Or(c.MaxItems, 16_384)
	c.MaxBytes = cmp.Or(c.MaxBytes, 64<<20)
	c.Retry.Initial = cmp.Or(c.Retry.Initial, 100*time.Millisecond)
	c.Retry.Max = cmp.Or(c.Retry.Max, 30*time.Second)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 30*time.Second)
	if c.Oversize == nil {
		c.Oversize = []Oversize{Trim, Reference}
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler)).With("sink", c.Name)
	return c
}

// validate says what is wrong with a configuration.
func (c *Config) validate() error {
	if c.Sink == nil {
		return errors.New("publisher: no sink")
	}
	if min(c.MaxItems, c.MaxBytes) < 0 ||
		min(c.Retry.Initial, c.Retry.Max, c.PublishTimeout, c.DeadLetterWait) < 0 {
		return fmt.Errorf("publisher of sink %q: bounds and durations must not be negative "+
			"(0 means the default)", c.Name)
	}
	if err := validateOversize(c.Oversize, c.Sink); err != nil {
		return fmt.Errorf("publisher of sink %q: %w", c.Name, err)
	}
	return nil
}

// Publisher brings items to one sink. Its methods may be called concurrently, Run once.
type Publisher struct {
	cfg      Config // with defaults
	metrics  *metrics
	warnings warnings

	marks    *marks
	inDoubt  inDoubt
	recalled *recalled

	capacity *capacity
	queue    *ratelimit.Queue[*lane]
	breaker  *breaker.Breaker
	bucket   *ratelimit.Bucket

	opened chan struct{} // closed when the sink is open
	door   door          // of those who use the sink from outside Run
	hurry  chan struct{} // a token: a drain waits, don't
	order  sinks.Order   // set before opened is closed
	limits sinks.Limits  // set before opened is closed; no zero values, within the bucket's bursts

	// mu is held for a few list operations at a time, never during a call of the sink, a settler or
	// the queue.
	mu        sync.Mutex
	lanes     map[string]*lane // guarded by mu: those with items
	ages      ages             // guarded by mu: all items
	unrouted  unrouted         // guarded by mu
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
		cfg:      cfg,
		marks:    new(marks),
		recalled: new(recalled),
		breaker:  breaker.New(cfg.Retry.Initial, cfg.Retry.Max),
		bucket:   bucket,
		opened:   make(chan struct{}),
		door:     newDoor(),
		hurry:    make(chan struct{}, 1),
		lanes:    map[string]*lane{},
		unrouted: newUnrouted(),
	}
	if r, ok := cfg.Sink.(sinks.Recaller); ok && !cfg.Forget {
		p.marks.sink, p.recalled = r, newRecalled(cfg.Saved.Recalled)
	}
	p.capacity = newCapacity(cfg.MaxItems, cfg.MaxBytes, p.door.closed)
	p.queue = ratelimit.NewQueue(ratelimit.FullJitter(
		ratelimit.Exponential[*lane](cfg.Retry.Initial, cfg.Retry.Max)))
	p.metrics = newMetrics(cfg.Registerer, p)
	return p, nil
}

// Run opens the sink, publishes until ctx ends, and closes the sink. It returns nil after a stop by
// ctx, the sink's error when it can't be opened for a reason that the operator must remove, and an
// error of closing it.
func (p *Publisher) Run(ctx context.Context) error {
	if p.door.running.Swap(true) {
		return fmt.Errorf("publisher of sink %q: Run was called twice", p.cfg.Name)
	}
	err := p.open(ctx)
	if err == nil && ctx.Err() == nil {
		p.work(ctx)
	}
	p.door.close()
	p.queue.ShutDown() // stops its timer
	p.marks.close()
	if closeErr := p.cfg.Sink.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close sink %q: %w", p.cfg.Name, closeErr))
	}
	items, _ := p.capacity.load()
	p.cfg.Log.Info("publisher stopped", "unsettled", items, "cause", context.Cause(ctx))
	return err
}

// open opens the sink and has it recall what it holds. It returns nil when ctx ends.
func (p *Publisher) open(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.cfg.Sink.Open, p.recall} {
		if err := p.persist(ctx, step); err != nil || ctx.Err() != nil {
			return err
		}
	}
	p.order, p.limits = p.cfg.Sink.Order(), p.limited(p.cfg.Sink.Limits())
	close(p.opened)
	p.cfg.Log.Info("sink is open")
	return nil
}

// persist tries a step of opening the sink again and again while that may help. It returns nil when
// ctx ends.
func (p *Publisher) persist(ctx context.Context, step func(context.Context) error) error {
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
		if isPanic(err) {
			p.metrics.panics.Inc()
			p.warnings.panicked.Log(p.cfg.Log, slog.LevelError, "a panic while the sink was opened or "+
				"read back; it is tried again", "err", err.Error(), "stack", event.StackOf(err))
		}
		if p.cfg.OnOpenError != nil {
			p.cfg.OnOpenError(err)
		}
		if p.classify(ctx, err) == sinks.Refused && !p.cfg.Patient {
			return fmt.Errorf("open sink %q: %w", p.cfg.Name, err)
		}
		delay := backoff.Next()
		p.cfg.Log.Warn("sink can't be opened yet", "err", err, "next_attempt_in", delay.String())
		if ratelimit.SleepOr(ctx, delay, p.hurry) != nil { // a drain does not wait
			return nil
		}
	}
}

// limited is what one Publish call holds: the sink's limits, or the defaults, within the bursts of
// the rate limit.
func (p *Publisher) limited(limits sinks.Limits) sinks.Limits {
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
	for range p.limits.Concurrency {
		running.Go(func() { (&worker{p: p}).run(ctx) })
	}
	running.Wait()
}

// Opened is closed when the sink was opened for the first time.
func (p *Publisher) Opened() <-chan struct{} { return p.opened }

// Drain waits until everything that was added is settled. It ends the delays that retries are in,
// once, so that each gets another chance before ctx ends. It returns an error when ctx or Run ended
// with items left.
func (p *Publisher) Drain(ctx context.Context) error {
	p.queue.Flush()
	p.breaker.Hurry()
	signal(p.hurry)
	var err error
	select {
	case <-p.capacity.idle():
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.door.closed:
		err = ErrStopped
	}
	items, bytes := p.capacity.load()
	return fmt.Errorf("drain sink %q: %d items (%d bytes) are not settled: %w", p.cfg.Name, items,
		bytes, err)
}
