package processor

import (
	"context"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/store"
)

// A broker that is unavailable at the first start can't be asked whether it holds events of an
// earlier run. The list does not wait for it. In place of its gap stands an entry of the log for
// that sink alone, with Unasked. Nothing passes an event about the informer, so nothing reaches the
// broker before it was asked. Like any entry this one survives a crash.

// resolve asks for an entry with Unasked, and reports whether the entry is to be sent.
func (l *Listener) resolve(ctx context.Context, e *changelog.Entry) (send bool, err error) {
	if !e.Unasked {
		return true, nil
	}
	holds, last, err := l.env.Holds(ctx, l.cfg.Name)
	if err != nil {
		return false, err
	}
	if !holds {
		l.cursor.Ack([]changelog.Ack{{At: e.Position}})
		return false, nil
	}
	l.env.Logger.Warn("the state of an earlier run is gone, and the broker, which was unavailable "+
		"before, holds events of it: everything is sent, and what was deleted since can't be known",
		"sink", l.cfg.Name)
	return true, l.raiseEpochs(ctx, e.Epoch, last)
}

// raiseEpochs puts the events of this sink into an epoch behind last, the latest that its
// broker holds. The informer's own epoch stays: other sinks have events of it, and later entries of
// the log too. So the difference is added for this sink, on disk before any event has it. A run
// that died here has done so before: what it may have sent keeps its ids.
func (l *Listener) raiseEpochs(ctx context.Context, epoch, last int) error {
	own := epoch + l.epochs
	if own > last || own == last && l.epochs > 0 {
		return nil
	}
	more := last + 1 - epoch
	err := store.RetryUntilWritten(ctx, l.env.Indexer, l.env.Logger, func() error {
		return l.env.Indexer.Meta().SetSinkEpochs(l.cfg.Name, more)
	})
	if err == nil {
		l.epochs = more
	}
	return err
}
