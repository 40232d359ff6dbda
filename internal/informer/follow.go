package informer

import (
	"cmp"
	"sync"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/resource"
)

// What is needed to follow another replica of this informer, and to be followed: where both stand,
// in versions of the API server.

// ReasonTakeover is the reason of a gap before a list of a replica that others were publishing
// before. It is told when the replica has to publish before they have passed its list: what was
// deleted until then is not known.
const ReasonTakeover = "takeover"

// cover says by what progress of another replica a change is settled for the listener too. What
// namespaces are selected is asked now: it may be later than what the change came of, and then the
// change only waits longer.
func (l *listener) cover(e *changelog.Entry) publisher.Cover {
	cover := coverOf(e, l.cfg.Name)
	if selection := l.informer.cfg.Selection; selection != nil {
		cover.Selection = selection()
	}
	return cover
}

func coverOf(e *changelog.Entry, sink string) publisher.Cover {
	cover := publisher.Cover{Version: cmp.Or(e.Told, e.Version), Epoch: e.Epoch}
	switch e.Kind {
	case changelog.OfQuarantined:
		cover.OfList = e.Unreadable.Version == "" // else no list follows
		cover.Version = e.Unreadable.Version
	case changelog.OfGap: // a list follows
		cover.OfList = true
	case changelog.OfDropped:
		cover.Version = e.Losses.Unread[sink].To
	case changelog.OfObject:
		cover.Repeats = e.Op == event.Synced
		cover.OfList = e.OfList
	case changelog.OfListEnd, changelog.OfProgress:
	}
	return cover
}

// history is how much of the server's history the informer has. Its methods may be called
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
func (i *Informer) resume() error {
	epoch, err := i.cfg.Indexer.Epoch()
	if err != nil {
		return err
	}
	position, err := i.cfg.Indexer.Position()
	if err != nil {
		return err
	}
	since, err := i.cfg.Indexer.Since()
	if err != nil {
		return err
	}
	from := position.Version
	if from != "" { // else a list follows
		from = cmp.Or(since, from)
	}
	i.history.resumes(from, epoch.Number)
	return nil
}

// History is the version since which the informer has seen everything, in an epoch of the server's
// history: that of its last list, or where it was resumed. ok is false while a list is under way,
// and before the first.
func (i *Informer) History() (from resource.Version, epoch int, ok bool) {
	h := &i.history
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.from, h.epoch, !h.listing && h.from != ""
}
