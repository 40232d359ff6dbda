package informer

import (
	"time"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
)

// Selector decides which changes of objects are sent: *filter.Filter.
type Selector interface {
	// Rejects says why a change is kept back, "" when it is sent. An error is counted and logged,
	// and keeps nothing back.
	Rejects(c *event.Change) (reason string, err error)
	// NeedsOld reports whether updates have to come with the old object.
	NeedsOld() bool
}

// complainEvery bounds how often the log tells that a selector fails; the metrics count each time.
const complainEvery = time.Minute

// selection asks one selector and keeps account. It is owned by the controller.
type selection struct {
	selector Selector
	sink     string // "" for that of the informer
	told     time.Time
}

// selectListeners takes out of those whom a change is for who does not want it.
func (c *controller) selectListeners(ch *changelog.Entry) {
	if c.informer.selection.selector != nil && c.rejects(&c.informer.selection, ch) {
		ch.For = 0
		return
	}
	for _, l := range c.informer.listeners {
		if l.selection.selector != nil && ch.For&l.bit != 0 && c.rejects(&l.selection, ch) {
			ch.For &^= l.bit
		}
	}
}

func (c *controller) rejects(s *selection, ch *changelog.Entry) bool {
	reason, err := s.ask(&ch.Change)
	if err != nil {
		c.informer.metrics.filterErrors.WithLabelValues(s.sink).Inc()
		if c.now.Sub(s.told) >= complainEvery {
			s.told = c.now
			c.informer.logger.Warn("a filter failed, so its event is sent; further failures are counted", "key", ch.Key, "version", ch.Version, "sink", s.sink, "err", err)
		}
	}
	if reason != "" {
		c.informer.metrics.filtered.WithLabelValues(s.sink, reason).Inc()
	}
	return reason != ""
}

// ask asks the selector. A panic is an error: it must not come back at each restart.
func (s *selection) ask(c *event.Change) (reason string, err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			reason, err = "", event.NewPanicError(recovered)
		}
	}()
	return s.selector.Rejects(c)
}
