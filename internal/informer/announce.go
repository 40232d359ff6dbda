package informer

import (
	"context"
	"errors"
	"time"

	"github.com/kubebridge/bridge/internal/store"
)

// announce makes durable which objects are new before anybody is sent an Added of them. If the
// bridge dies before anything of an object is settled, and the object is deleted within a gap, the
// announcement is all that says that its delete has to be told. It waits while the disk refuses:
// reading stops, nothing is lost.
func (i *Informer) announce(ctx context.Context, news []store.Announcement) error {
	if len(news) == 0 {
		return nil
	}
	for {
		if err := i.cfg.Indexer.WaitAvailable(ctx); err != nil {
			return err
		}
		err := i.cfg.Indexer.Announce(news)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrUnavailable):
			continue // the store has told of it
		}
		i.logger.Error("new objects can't be noted in the state directory; reading waits", "err", err)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}
