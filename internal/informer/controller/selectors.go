package controller

import (
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
)

// complainEvery bounds how often the log says that a selector fails; the metrics count each time.
const complainEvery = time.Minute

// selection asks one selector and keeps account. It is owned by the controller.
type selection struct {
	selector Selector
	sink     string // "" for that of the informer
	logged   time.Time
}

// selectors are those of the informer and its listeners.
type selectors struct {
	own       selection
	listeners []listener // in their order
	any       bool       // there is a selector
	needsOld  bool       // a selector or a listener needs the object before an update
}

// listener is what the controller remembers of one.
type listener struct {
	Listener
	bit       changelog.Listeners
	selection selection
	progress  struct { // reported last
		version resource.Version
		at      time.Time
	}
}

func newSelectors(cfg *Config, env *Env) selectors {
	s := selectors{own: selection{selector: cfg.Selector}}
	s.use(cfg.Selector)
	for n, l := range env.Listeners {
		s.listeners = append(s.listeners, listener{
			Listener: l, bit: 1 << n, selection: selection{selector: l.Selector, sink: l.Name},
		})
		s.needsOld = s.needsOld || l.NeedsOld
		s.use(l.Selector)
	}
	return s
}

// use prepares for a selector, which may be nil.
func (s *selectors) use(selector Selector) {
	if selector != nil {
		s.any = true
		s.needsOld = s.needsOld || selector.NeedsOld()
	}
}

// selectListeners takes out of those whom a change is for who does not want it.
func (c *Controller) selectListeners(ch *changelog.Entry) {
	if c.selectors.own.selector != nil && c.rejects(&c.selectors.own, ch) {
		ch.For = 0
		return
	}
	for n := range c.selectors.listeners {
		l := &c.selectors.listeners[n]
		if l.selection.selector != nil && ch.For&l.bit != 0 && c.rejects(&l.selection, ch) {
			ch.For &^= l.bit
		}
	}
}

func (c *Controller) rejects(s *selection, ch *changelog.Entry) bool {
	reason, err := s.ask(&ch.Change)
	if err != nil {
		c.metrics.filterErrors.With(s.sink).Inc()
		if c.now.Sub(s.logged) >= complainEvery {
			s.logged = c.now
			c.env.Logger.Warn("a filter failed, so its event is sent; further failures are counted",
				"key", ch.Key, "version", ch.Version, "sink", s.sink, "err", err)
		}
	}
	if reason != "" {
		c.metrics.filtered.WithLabelValues(s.sink, reason).Inc()
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
