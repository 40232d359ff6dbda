package informer

import (
	"maps"

	"github.com/kubebridge/bridge/internal/store"
)

// restoreLosses finds what a run before had dropped while it was with a publisher: whether that was sent nobody knows, so it counts as
// lost. cursors are those that were saved; what is gone is taken out of them.
func (i *Informer) restoreLosses(cursors map[string]cursor) error {
	earlier, position, gaps, err := i.firstNotice()
	if err != nil || earlier == nil {
		return err
	}
	lost := newLosses()
	maps.Copy(lost.Unread, earlier.Unread)
	changed := map[string][]byte{}
	for name, l := range earlier.Sent {
		c, known := cursors[name]
		// The notice may have been written beside a commit that took the cursor before: then it stands before the notice.
		if !known || c.next > position && !c.owes(position, gaps, earlier.Unread[name].Events > 0) {
			continue
		}
		merge(lost.Unread, name, l)
		lost.fresh[name] = l.Events
		cursors[name] = c.backTo(position, gaps)
		changed[name] = cursors[name].encode()
	}
	if len(changed) == 0 {
		return nil
	}
	notice, err := i.notice(position, lost)
	if err != nil {
		return err
	}
	if err := i.cfg.Indexer.CutLog(0, []store.LogEntry{notice}, changed); err != nil {
		return err
	}
	i.tellLog(lost)
	return nil
}

// firstNotice is what the notice at the front of the log on disk tells, nil when there is none, and the positions of the gaps before it.
func (i *Informer) firstNotice() (notice *losses, position uint64, gaps []uint64, err error) {
	first, next, err := i.cfg.Indexer.LogBounds()
	if err != nil {
		return nil, 0, nil, err
	}
	for e, err := range i.cfg.Indexer.Log(first, next) {
		if err != nil {
			return nil, 0, nil, err
		}
		r, _, err := decodeHeader(e.Position, e.Data)
		if err != nil || r.Kind != ofGap {
			return r.Losses, e.Position, gaps, err
		}
		gaps = append(gaps, e.Position)
	}
	return nil, 0, nil, nil
}
