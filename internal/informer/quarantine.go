package informer

import (
	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/event"
)

// quarantined tells of something that the API server sent and that can't be understood. Until that is settled the watermark stays before it, so
// that after a crash it comes, and is told, again.
func (c *controller) quarantined(d *deltafifo.Delta) error {
	ch := c.newChange(event.Change{Op: event.Quarantined})
	ch.kind, ch.unreadable = ofQuarantined, d.Unreadable
	ch.size += d.Unreadable.Bytes()
	c.emit(ch)
	return nil
}

// spared takes note of an item of a list that can't be understood: its object is there, whatever became of it, and others that had its name are
// gone. When nobody knows which object it is, the FIFO takes nothing for gone.
func (c *controller) spared(d *deltafifo.Delta) error {
	c.listed.Unreadable++
	key, uid := d.Spared.Key, d.Spared.UID
	if key == "" {
		c.listed.DeletesUnknown = true
		return nil
	}
	c.marks = append(c.marks, key)
	delete(c.older, key) // this may be its later state
	if uid == "" {
		return nil
	}
	known, found, err := c.cfg.Indexer.Get(key)
	if err != nil {
		return err
	}
	c.telling = d.Spared.Version
	if found && !known.Deleted && known.UID != uid {
		if err := c.gone(key, known, known.Version, c.causeOfEnd()); err != nil {
			return err
		}
	}
	before := c.leftBefore(key, uid, d.Spared.Version)
	if len(before) == 0 {
		return nil
	}
	return c.goneUnsettled(key, before, before[len(before)-1].Version, c.causeOfEnd())
}
