package changelog

import (
	"maps"

	"github.com/kubebridge/bridge/internal/store"
)

// restoreLosses finds what a run before had dropped while it was pending: whether that was sent
// nobody knows, so it counts as lost. stands are those that were saved; what is gone is taken out
// of them.
func (l *Log) restoreLosses(stands map[string]stand) error {
	earlier, at, gaps, err := l.firstNotice()
	if err != nil || earlier == nil {
		return err
	}
	lost := newLosses()
	maps.Copy(lost.Unread, earlier.Unread)
	changed := map[string][]byte{}
	for name, loss := range earlier.Sent {
		s, known := stands[name]
		// The notice may have been written beside a commit that took the cursor before: then it
		// stands before the notice.
		if !known || s.next > at && !s.owes(at, gaps, earlier.Unread[name].Events > 0) {
			continue
		}
		merge(lost.Unread, name, loss)
		lost.fresh[name] = loss.Events
		s = s.backTo(at, gaps)
		stands[name], changed[name] = s, s.encode()
	}
	if len(changed) == 0 {
		return nil
	}
	notice, err := l.notice(at, &lost)
	if err != nil {
		return err
	}
	if err := l.cfg.Indexer.CutLog(0, []store.LogEntry{notice}, changed); err != nil {
		return err
	}
	l.report(&lost)
	return nil
}

// firstNotice is what the notice at the front of the log on disk says, nil when there is none, and
// the positions of the gaps before it.
func (l *Log) firstNotice() (notice *Losses, at Position, gaps []Position, err error) {
	first, next, err := l.cfg.Indexer.LogBounds()
	if err != nil {
		return nil, 0, nil, err
	}
	for e, err := range l.cfg.Indexer.Log(first, next) {
		if err != nil {
			return nil, 0, nil, err
		}
		r, _, err := decodeHeader(Position(e.Position), e.Data)
		if err != nil || r.Kind != OfGap {
			return r.Losses, Position(e.Position), gaps, err
		}
		gaps = append(gaps, Position(e.Position))
	}
	return nil, 0, nil, nil
}
