package controller

import (
	"context"
	"strings"

	"github.com/kubebridge/bridge/internal/deltafifo"
	"github.com/kubebridge/bridge/internal/resource"
)

// An etcd that was restored from a backup, and whose version has overtaken ours before we asked (or
// was raised, as etcd advises), looks like one that has only forgotten versions. But its objects
// show it: what was changed after the backup is in an older state again, and versions of one object
// never go back in one history.
//
// A list that is only late must never look like that. What is known was in the history at its
// version. So a list of that history, as of this version or a later one, has the object in this
// state or a later one, whichever API server answers and whatever its watch cache has. What makes
// the proof is therefore an item that is older than what is known, where that is no newer than the
// list itself; a list from a cache that is behind is as of an earlier version. That holds for what
// an item is as of the list's version. A WatchList may begin with older states, if it reports the
// later ones before its end: those take the proof back, also when they can't be read, or are
// deletes.

// maxOlderItems bounds how many objects are kept in mind that a list has in an older state. One is
// a proof.
const maxOlderItems = 256

// compare notes an item of a list that is older than what is known of the same object, and forgets
// that when a later state, or its delete, follows in the same list. A delete that is older is noted
// too: nothing that was deleted by then is alive in a later state.
func (c *Controller) compare(d *deltafifo.Delta, known *Known, found bool) {
	switch was := &known.Record; {
	case c.cfg.Diverged == nil || c.list.Rewound() || c.list.Partial():
	case !found || was.UID != d.Object.UID || !was.Version.Newer(d.Object.Version):
		delete(c.olderItems, d.Key)
	case len(c.olderItems) < maxOlderItems:
		key := resource.Key(strings.Clone(string(d.Key)))
		c.olderItems[key] = resource.Version(strings.Clone(string(was.Version)))
	}
}

// diverges reports whether a list as of version proves that the history is another. One with an
// item that nobody can identify proves nothing: that may be the later state of any.
func (c *Controller) diverges(version resource.Version) bool {
	if c.listed.DeletesUnknown {
		return false
	}
	for _, known := range c.olderItems {
		if known.NotNewer(version) {
			return true
		}
	}
	return false
}

// setDiverged notes on disk that the history is another. What came with the list that showed it
// moves the settled state on, and after a crash another list would not show it again. Until
// everything is compared again nothing moves the watermark.
func (c *Controller) setDiverged(ctx context.Context, version resource.Version) error {
	c.env.Logger.Warn("the API server has older states of objects than were published: "+
		"its history is another, and everything is compared again",
		"version", version, "older", len(c.olderItems))
	if err := c.persist(ctx, c.env.Indexer.Meta().SetDiverged); err != nil {
		return err
	}
	c.diverged = true
	c.cfg.Diverged.Set()
	return nil
}
