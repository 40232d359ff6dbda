package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// retryEvery is how long RetryUntilWritten waits after a write that failed.
const retryEvery = time.Second

// RetryUntilWritten calls write until it succeeds, for what has to be on disk before anything that
// follows from it. It waits while the disk refuses: reading stops, nothing is lost. It fails only
// when ctx ends.
func RetryUntilWritten(
	ctx context.Context, ix *Indexer, log *slog.Logger, write func() error,
) error {
	for {
		if err := ix.db.state.WaitAvailable(ctx); err != nil {
			return err
		}
		err := write()
		if err == nil {
			return nil
		}
		if !errors.Is(err, statedb.ErrUnavailable) { // which the database logs, once
			log.Error("what has to be on disk before reading continues can't be written to the "+
				"state directory; reading waits", "err", err)
		}
		if err := ratelimit.Sleep(ctx, retryEvery); err != nil {
			return err
		}
	}
}
