package publisher

import (
	"cmp"
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
	Saved SavedPosition
	// Gate is asked before and after each call that stores something; while it gives an error
	// nothing is sent, and what was sent counts as not answered. Its error is logged. It is called
	// often, from several goroutines, and must not block. nil: always open.
	Gate func() error
	// Keep is the last resort for events that the sink has refused and that have no place, or a
	// place that refuses them too. It keeps them elsewhere, and returns nil when they will be there
	// after a crash. Then they are settled. deadLetter is why the place did not take it. It is
	// called from several goroutines, and again after an error. But where it is the last resort and
	// its error is ErrNoRoom, the event is lost. nil: without a place such an event is lost, and
	// its place is asked forever.
	Keep func(e *event.Event, refused, deadLetter error, attempts int) error
	// DeadLetterWait is how long the place of dead letters is asked, while the broker is there,
	// before an event is kept; 0 forever.
	DeadLetterWait time.Duration
	// Forget sends everything again that the checkpoint does not know of, even where the sink could
	// say what it holds.
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

// validateOversize refuses ways that there are not, or that the sink can't go.
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

// checkGate asks the gate. While it is shut every message of the batch gets its error, in place of any
// answer: behind a gate that was shut meanwhile, an answer may be about what another process has
// stored.
func (p *Publisher) checkGate(batch []*sinks.Message) bool {
	err := p.gateError()
	if err == nil {
		return true
	}
	sinks.Fail(batch, err)
	return false
}

// gateError is why nothing may be sent now, nil when it may.
func (p *Publisher) gateError() error {
	if p.cfg.Gate == nil {
		return nil
	}
	if err := p.cfg.Gate(); err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	return nil
}

// Outline is a shorter form of a position, for Inherit; nil where there is none.
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

// UnreadPosition is the position from which the sink's log has still to be read; nil once that has begun.
// A publisher that takes the place of one that was never open inherits it.
func (p *Publisher) UnreadPosition() []byte {
	if p.holds.low() != nil {
		return nil
	}
	return p.cfg.Saved.Position
}
