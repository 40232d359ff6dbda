package controller

import (
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer/changelog"
)

// quarantined reports something that the API server sent and that can't be understood. Until that
// is settled the watermark stays before it, so that after a crash it comes, and is reported, again.
func (c *Controller) quarantined(d *deltafifo.Delta) error {
	if err := c.missed(d.Unreadable.Key); err != nil {
		return err
	}
	ch := c.newChange(event.Change{Op: event.Quarantined, Key: d.Unreadable.Key})
	ch.Kind, ch.Unreadable = changelog.OfQuarantined, d.Unreadable
	c.emit(ch)
	return nil
}
