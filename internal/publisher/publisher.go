package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	// its place is asked for ever.
	Keep func(e *event.Event, refused, deadLetter error, attempts int) error
	// DeadLetterWait is how long the place of dead letters is asked, while the broker is there,
	// before an event is kept; 0 for ever.
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

// Publisher brings items to one sink. Its methods may be called concurrently, Run once.
type Publisher struct {
	sink        sinks.Sink
	sizer       sinks.Sizer // the sink, where it is one; else nil
	oversize    []Oversize
	name        string
	retry       Retry
	timeout     time.Duration
	patient     bool
	onOpenError func(error)
	onSettle    func([]*Item)
	log         *slog.Logger
	metrics     *metrics
	warnings    warnings

	marks    *marks
	inDoubt  inDoubt
	recalled *recalled
	saved    Saved
	gate     func() error

	keep           func(e *event.Event, refused, deadLetter error, attempts int) error
	deadLetterWait time.Duration

	capacity *capacity
	queue    *ratelimit.Queue[*lane]
	breaker  *breaker
	bucket   *ratelimit.Bucket

	opened   chan struct{} // closed when the sink is open
	stopped  chan struct{} // closed when Run no longer takes items
	left     chan struct{} // closed when the last visitor has left after that
	routeNow chan struct{} // a token: an item is unrouted
	hurry    chan struct{} // a token: a drain waits, don't
	running  atomic.Bool
	order    sinks.Order  // set before opened is closed
	limits   sinks.Limits // set before opened is closed; no zero values, within the bucket's bursts

	inFlight atomic.Int64 // messages in Publish calls
	counts   counts

	// mu is held for a few list operations at a time, never during a call of the sink, a settler or
	// the queue.
	mu        sync.Mutex
	lanes     map[string]*lane // guarded by mu: those with items
	ages      ages             // guarded by mu: all items
	unrouted  unrouted         // guarded by mu
	visitors  int              // guarded by mu: calls that use the sink from outside Run
	closing   bool             // guarded by mu
	detaching []*detachment    // guarded by mu
	lanePool  sync.Pool        // of *lane
}

// New checks the configuration. It does not touch the sink.
func New(cfg Config) (*Publisher, error) {
	if cfg.Sink == nil {
		return nil, errors.New("publisher: no sink")
	}
	if cfg.MaxItems < 0 || cfg.MaxBytes < 0 || cfg.Retry.Initial < 0 || cfg.Retry.Max < 0 || cfg.PublishTimeout < 0 || cfg.DeadLetterWait < 0 {
		return nil, fmt.Errorf("publisher of sink %q: bounds and durations must not be negative (0 means the default)", cfg.Name)
	}
	if cfg.Oversize == nil {
		cfg.Oversize = []Oversize{Trim, Reference}
	}
	if err := validateOversize(cfg.Oversize, cfg.Sink); err != nil {
		return nil, fmt.Errorf("publisher of sink %q: %w", cfg.Name, err)
	}
	bucket, err := ratelimit.NewBucket(cfg.RateLimit)
	if err != nil {
		return nil, fmt.Errorf("publisher of sink %q: %w", cfg.Name, err)
	}
	retry := Retry{
		Initial: cmp.Or(cfg.Retry.Initial, 100*time.Millisecond),
		Max:     cmp.Or(cfg.Retry.Max, 30*time.Second),
	}
	sizer, _ := cfg.Sink.(sinks.Sizer)
	p := &Publisher{
		sink:        cfg.Sink,
		sizer:       sizer,
		oversize:    cfg.Oversize,
		name:        cfg.Name,
		retry:       retry,
		timeout:     cmp.Or(cfg.PublishTimeout, 30*time.Second),
		patient:     cfg.Patient,
		onOpenError: cfg.OnOpenError,
		onSettle:    cfg.OnSettle,
		log:         cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)).With("sink", cfg.Name),
		breaker:     newBreaker(retry),
		bucket:      bucket,
		opened:      make(chan struct{}),
		stopped:     make(chan struct{}),
		left:        make(chan struct{}),
		routeNow:    make(chan struct{}, 1),
		hurry:       make(chan struct{}, 1),
		lanes:       map[string]*lane{},
		unrouted:    newUnrouted(),
		lanePool:    sync.Pool{New: func() any { return new(lane) }},
		marks:       new(marks),
		recalled:    new(recalled),
		saved:       cfg.Saved,
		gate:        cfg.Gate,

		keep: cfg.Keep, deadLetterWait: cfg.DeadLetterWait,
	}
	if r, ok := cfg.Sink.(sinks.Recaller); ok && !cfg.Forget {
		p.marks.sink, p.recalled = r, newRecalled(cfg.Saved.Recalled)
	}
	p.capacity = newCapacity(cmp.Or(cfg.MaxItems, 16_384), cmp.Or(cfg.MaxBytes, 64<<20), p.stopped)
	p.queue = ratelimit.NewQueue(ratelimit.Config[*lane]{
		Limiter: ratelimit.FullJitter(ratelimit.Exponential[*lane](retry.Initial, retry.Max)),
	})
	p.metrics = newMetrics(cfg.Registerer, p)
	return p, nil
}

// Run opens the sink, publishes until ctx ends, and closes the sink. It returns nil after a stop by
// ctx, the sink's error when it can't be opened for a reason that the operator must remove, and an
// error of closing it.
func (p *Publisher) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return fmt.Errorf("publisher of sink %q: Run was called twice", p.name)
	}
	err := p.open(ctx)
	if err == nil && ctx.Err() == nil {
		p.work(ctx)
	}
	p.lockOut()
	p.queue.ShutDown() // stops its timer
	p.marks.close()
	if closeErr := p.sink.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close sink %q: %w", p.name, closeErr))
	}
	items, _ := p.capacity.load()
	p.log.Info("publisher stopped", "unsettled", items, "cause", context.Cause(ctx))
	return err
}

// open opens the sink and has it recall what it holds. It returns nil when ctx ends.
func (p *Publisher) open(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.sink.Open, p.recall} {
		if err := p.persist(ctx, step); err != nil || ctx.Err() != nil {
			return err
		}
	}
	p.order, p.limits = p.sink.Order(), p.limited(p.sink.Limits())
	close(p.opened)
	p.log.Info("sink is open")
	return nil
}

// persist tries a step of opening the sink again and again while that may help. It returns nil when
// ctx ends.
func (p *Publisher) persist(ctx context.Context, step func(context.Context) error) error {
	backoff := ratelimit.Backoff{Initial: p.retry.Initial, Max: p.retry.Max}
	for {
		err := step(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		p.failed(err)
		if p.onOpenError != nil {
			p.onOpenError(err)
		}
		if p.classify(ctx, err) == sinks.Refused && !p.patient {
			return fmt.Errorf("open sink %q: %w", p.name, err)
		}
		delay := backoff.Next()
		p.log.Warn("sink can't be opened yet", "err", err, "next_attempt_in", delay.String())
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
		running.Go(func() { (&worker{Publisher: p}).run(ctx) })
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
	p.breaker.hurry()
	signal(p.hurry)
	var err error
	select {
	case <-p.capacity.idle():
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-p.stopped:
		err = ErrStopped
	}
	items, bytes := p.capacity.load()
	return fmt.Errorf("drain sink %q: %d items (%d bytes) are not settled: %w", p.name, items, bytes, err)
}
