package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Config of a Publisher. Zero values mean the documented default.
type Config struct {
	// Sink is opened and closed by Run. Required.
	Sink sinks.Sink
	// Name of the sink, for logs and errors.
	Name string
	// MaxItems and MaxBytes bound the items that are queued and in flight, over all adders; default
	// 16,384 items and 64 MiB. An item counts its payload and 768 bytes; one larger than MaxBytes
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
	// MaxSize bounds the payload of an event in bytes; 0 for no bound but the broker's.
	MaxSize int
	// Oversize are the ways to make an event fit that is too large for the broker, in the order of
	// trying. An event that fits by none of them goes to the dead letters. The broker's limit is
	// known by MaxSize, the sink (sinks.Sizer), or refusals. Default: Trim, then Reference.
	Oversize []Oversize
	// Patient keeps trying to open a sink whatever the error. Without it, Run returns an error that
	// only an operator can remove.
	Patient bool
	// OnSettle is called with settled items, in their order for each object, before their Settlers
	// get them back. It delays the publisher, so it must return at once, and may keep neither the
	// slice, the items nor their events. May be nil.
	OnSettle func(settled []*Item)
	// OnLoss is called when the sink's destination has lost what it had acknowledged, or does not
	// know that it has it (sinks.Unverified); and again, with the same round, every few seconds
	// while it returns an error. One goroutine calls it. May be nil.
	OnLoss func(ctx context.Context, round int64) error
	// Saved is what the last checkpoint of an earlier process has. Messages that the sink holds
	// behind that position are not sent again.
	Saved SavedPosition
	// Gate is called before and after each call that stores something. While it returns an error
	// nothing is sent, and what was sent counts as not answered. Its error is logged. It is called
	// often, from several goroutines, and must not block. nil: always open.
	Gate func() error
	// Keep keeps an event that the sink has refused and that can't be a dead letter: the sink has
	// no place for dead letters, or the place refuses the event too (deadLetter says why). It
	// returns nil when the event will be there after a crash; then the event is settled. It is
	// called from several goroutines, and again after an error. Without a place, an error that is
	// ErrNoRoom means that the event is lost. nil: without a place the event is lost, and a place
	// is tried forever.
	Keep func(e *event.Event, refused, deadLetter error, attempts int) error
	// SignLetter returns the attribute deadlettersignature of an event that becomes a dead letter.
	// nil: dead letters have none.
	SignLetter func(e *event.Event) string
	// DeadLetterWait is how long the place of dead letters is tried, while the broker is available,
	// before an event is kept; 0 forever.
	DeadLetterWait time.Duration
	// Forget sends everything again that the checkpoint does not cover, even where the sink could
	// report what it holds.
	Forget bool
	// Log defaults to none.
	Log *slog.Logger
	// Registerer of the metrics; nil for none. Several publishers need one each that adds a label.
	Registerer prometheus.Registerer
}

// Retry is an exponential backoff, and when a message is given up: it then counts as refused.
// Failures count while the broker can be reached.
type Retry struct {
	Initial     time.Duration // first delay; default 100 ms
	Max         time.Duration // longest delay; default 30 s
	MaxAttempts int           // failures until a message is given up; 0 for no bound
	MaxAge      time.Duration // since its first failure, until it is given up; 0 for no bound
}

// Oversize is a way to make an event fit that is too large for its broker.
type Oversize string

// The ways. Each is tried in the order of Config.Oversize; an event that fits by none goes to the
// dead letters.
const (
	Trim  Oversize = "trim"  // cut the last-applied annotation and managedFields
	Claim Oversize = "claim" // keep the payload elsewhere; the event has a dataref
	// the object's metadata instead of the object, or if that is too large nothing
	Reference Oversize = "reference"
)

// Oversizes are all ways, as the configuration may name them.
var Oversizes = []Oversize{Trim, Claim, Reference}

// withDefaults sets what zero values mean.
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

func (c *Config) validate() error {
	if c.Sink == nil {
		return errors.New("publisher: no sink")
	}
	if min(c.MaxItems, c.MaxBytes) < 0 ||
		min(c.Retry.Initial, c.Retry.Max, c.PublishTimeout, c.DeadLetterWait) < 0 ||
		c.Retry.MaxAttempts < 0 || c.Retry.MaxAge < 0 {
		return fmt.Errorf("publisher of sink %q: bounds and durations must not be negative "+
			"(0 means the default)", c.Name)
	}
	if err := validateOversize(c.Oversize, c.Sink); err != nil {
		return fmt.Errorf("publisher of sink %q: %w", c.Name, err)
	}
	return nil
}

// validateOversize refuses unknown ways, and ways that the sink does not support.
func validateOversize(ways []Oversize, sink sinks.Sink) error {
	for _, way := range ways {
		if !slices.Contains(Oversizes, way) {
			return fmt.Errorf("oversize %q: there are %v", way, Oversizes)
		}
		if _, ok := sink.(sinks.ClaimChecker); way == Claim && !ok {
			return errors.New("oversize claim: the sink has no place to keep payloads")
		}
	}
	return nil
}

// checkGate reports whether the gate is open. While it is shut every message of the batch gets its
// error, in place of any answer: if the gate was shut during a call, an answer may be about
// messages of another process.
func (p *Publisher) checkGate(batch []*sinks.Message) bool {
	err := p.gateError()
	if err == nil {
		return true
	}
	sinks.Fail(batch, err)
	return false
}

// gateError returns why nothing may be sent now, nil when it may.
func (p *Publisher) gateError() error {
	if p.cfg.Gate == nil {
		return nil
	}
	if err := p.cfg.Gate(); err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	return nil
}

// Outline returns a shorter form of a position, for ContinueFrom; nil where there is none.
func (p *Publisher) Outline(position []byte) []byte {
	if o, ok := p.cfg.Sink.(sinks.Outliner); ok {
		return o.Outline(position)
	}
	return nil
}

// ContinueFrom replaces the saved position of the sink's log by that of another process, which has
// published until now. It is called before Run. nil changes nothing.
func (p *Publisher) ContinueFrom(position []byte) {
	if position != nil {
		p.cfg.Saved.Position = position
	}
}

// UnreadPosition returns the position from which the sink's log has still to be read; nil once that
// has begun. A publisher that replaces one that was never open continues from it.
func (p *Publisher) UnreadPosition() []byte {
	if p.holds.low() != nil {
		return nil
	}
	return p.cfg.Saved.Position
}
