package controller

import (
	"cmp"
	"sync"

	"github.com/kubebridge/bridge/internal/resource"
)

// history is how much of the server's history is known. Its methods may be called
// concurrently.
type history struct {
	mu      sync.Mutex
	from    resource.Version // since then nothing is missing; "" while that is not known
	listing bool
	epoch   int
}

func (h *history) resumes(from resource.Version, epoch int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.from, h.epoch = from, epoch
}

func (h *history) begins(epoch int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listing, h.epoch = true, epoch
}

func (h *history) ends(version resource.Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listing, h.from = false, version
}

// now is the epoch.
func (h *history) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch
}

// resume takes up the history of the run before: what it has not settled lies in the log on disk.
// It reaches back to the last list, where that was noted, and to the position at least.
func (c *Controller) resume() error {
	epoch, err := c.env.Indexer.Meta().Epoch()
	if err != nil {
		return err
	}
	position, err := c.env.Indexer.Meta().Position()
	if err != nil {
		return err
	}
	since, err := c.env.Indexer.Meta().Since()
	if err != nil {
		return err
	}
	if c.pending, err = c.env.Indexer.Meta().ListPending(); err != nil {
		return err
	}
	from := position.Version
	if c.pending {
		from = ""
	}
	if from != "" { // else a list follows
		from = cmp.Or(since, from)
	}
	c.history.resumes(from, epoch.Number)
	return nil
}

// History is the version since which everything was seen, in an epoch of the server's
// history: that of its last list, or where it was resumed. ok is false while a list is under way,
// and before the first.
func (c *Controller) History() (from resource.Version, epoch int, ok bool) {
	h := &c.history
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.from, h.epoch, !h.listing && h.from != ""
}
