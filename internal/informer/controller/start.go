package controller

import (
	"cmp"
	"sync"

	"github.com/kubebridge/bridge/internal/resource"
)

// StartState is what a start finds.
type StartState struct {
	// Diverged: the API server's history is another than the known one, and no list since then is
	// settled.
	Diverged bool
	// Pending: there is a watermark, and a list of everything had begun that the watermark has not
	// reached. A watch from the watermark could bring older versions than the sinks have.
	Pending bool
	// Watermark: there is a version from which a watch loses nothing.
	Watermark bool
	// Lists: the informer lists whatever is known, for `snapshot: always`, or since it feeds a sink
	// that only another replica has fed before.
	Lists bool
	// NoSnapshot is `snapshot: never`.
	NoSnapshot bool
	// Known: there are objects on disk. Complete: consumers may rely on having all of them, since a
	// list has ended.
	Known, Complete bool
	// Led reports whether other replicas have published before, and Holds whether the broker of a
	// sink has events of an earlier run. They are called when no case before theirs holds. nil: no.
	Led, Holds func() bool
}

// StartCase is what a start does.
type StartCase int

const (
	// Rewound lists, and compares by equality only: the gap is `rewound`.
	Rewound StartCase = iota
	// Resume asks for the server's version, and watches from the watermark.
	Resume
	// Now watches from now on.
	Now
	// Interrupted lists: the gap is `interrupted`.
	Interrupted
	// Takeover lists: the gap is `takeover`.
	Takeover
	// Continued lists: the gap is `interrupted`, before the first object that shows that one is
	// there.
	Continued
	// Forgotten begins the next epoch and lists: the gap is `forgotten`, for the sinks that hold
	// events.
	Forgotten
	// First lists. There is no gap.
	First
)

// Recover returns the first case that holds.
func Recover(f *StartState) StartCase {
	ask := func(question func() bool) bool { return question != nil && question() }
	switch {
	case f.Diverged:
		return Rewound
	case f.Pending:
		return Interrupted
	case f.Watermark && !f.Lists:
		return Resume
	case f.NoSnapshot:
		return Now
	case f.Known && f.Complete:
		return Interrupted
	case ask(f.Led):
		return Takeover
	case f.Known:
		return Continued
	case !f.Watermark && ask(f.Holds):
		return Forgotten
	}
	return First
}

// seen is how much of the server's history is known. Its methods may be called concurrently.
type seen struct {
	mu      sync.Mutex
	from    resource.Version // since then nothing is missing; "" while that is not known
	listing bool
	epoch   int
}

func (h *seen) resumes(from resource.Version, epoch int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.from, h.epoch = from, epoch
}

func (h *seen) begins(epoch int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listing, h.epoch = true, epoch
}

func (h *seen) ends(version resource.Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listing, h.from = false, version
}

// now returns the epoch.
func (h *seen) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch
}

// resume takes over what the run before has seen; its unsettled changes lie in the log on disk.
// That reaches back to the last list, where its version is on disk, and to the saved position at
// least.
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
	c.seen.resumes(from, epoch.Number)
	return nil
}

// SeenSince returns the version since which everything was seen, in an epoch of the server's
// history: that of the last list, or of the resumed position. ok is false during a list, and before
// the first.
func (c *Controller) SeenSince() (from resource.Version, epoch int, ok bool) {
	h := &c.seen
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.from, h.epoch, !h.listing && h.from != ""
}
