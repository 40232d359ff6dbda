package informer

import (
	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

// reportProgress reports to the listeners that want it, and for which it is time, that all changes up
// to the version of a bookmark are before this event: it waits until they are settled. The id has the
// version, so a version is reported once.
func (c *controller) reportProgress(version resource.Version) {
	var due changelog.Listeners
	for _, l := range c.listeners {
		every := l.cfg.Progress
		if every == 0 || version == l.progress.version || c.now.Sub(l.progress.at) < every {
			continue
		}
		l.progress.version, l.progress.at = version, c.now
		due |= l.bit
	}
	if due == 0 {
		return
	}
	ch := c.newChange(event.Change{Op: event.Progress, Version: version})
	ch.Kind, ch.For = changelog.OfProgress, due
	c.emit(ch)
}
