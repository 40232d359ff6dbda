package informer

import (
	"context"

	"github.com/kubebridge/bridge/internal/changelog"
)

// A broker that is unavailable at the first start can't be asked whether it holds events of an
// earlier run. The list does not wait for it. In place of its gap stands an entry of the log for
// that sink alone, with Unasked. Nothing passes an event about the informer, so nothing reaches the
// broker before it was asked. Like any entry this one survives a crash.

// resolve asks for an entry with Unasked, and reports whether the entry is to be sent.
func (l *listener) resolve(ctx context.Context, e *changelog.Entry) (send bool, err error) {
	if !e.Unasked {
		return true, nil
	}
	holds, last, err := l.informer.cfg.Holds(ctx, l.cfg.Name)
	if err != nil {
		return false, err
	}
	if !holds {
		l.cursor.Ack([]changelog.Ack{{At: e.Position}})
		return false, nil
	}
	l.informer.logger.Warn("the state of an earlier run is gone, and the broker, which was unavailable before, holds events of it: "+
		"everything is sent, and what was deleted since can't be known", "sink", l.cfg.Name)
	return true, l.outlive(ctx, e.Epoch, last)
}

// outlive puts the events of this sink into an epoch behind last, the latest that its broker holds.
// The informer's own epoch stays: other sinks have events of it, and later entries of the log too.
// So the difference is added for this sink, on disk before any event has it. A run that died here
// has done so before: what it may have sent keeps its ids.
func (l *listener) outlive(ctx context.Context, epoch, last int) error {
	own := epoch + l.cfg.epochs
	if own > last || own == last && l.cfg.epochs > 0 {
		return nil
	}
	more := last + 1 - epoch
	err := l.informer.insist(ctx, func() error {
		return l.informer.cfg.Indexer.SetSinkEpochs(l.cfg.Name, more)
	})
	if err == nil {
		l.cfg.epochs = more
	}
	return err
}
