package informer

import (
	"context"
	"fmt"
	"time"
)

// An informer can be ended while its sinks are unavailable, and another continue with its state,
// without anything coming twice. What is not acknowledged belongs to the cursor of its listener: it
// is taken back from the publisher and lies in the log on disk, and the next listener adds it
// again.

// detachPatience is how long End waits for the calls of a sink that hold something of this
// informer.
const detachPatience = time.Second

// Decided is closed when everything that the FIFO had when it was closed is in the log.
func (i *Stages) Decided() <-chan struct{} { return i.decided }

// End takes back what the listeners have added to their publishers, and gives everything that is
// not settled to the log on disk. The commit that follows makes that durable, with the cursors. Run
// has returned. After an error some of it is not on disk: it is read again, and may be sent twice.
// A second call does nothing.
func (i *Stages) End() error {
	ctx, cancel := context.WithTimeout(context.Background(), detachPatience)
	defer cancel()
	for _, l := range i.listeners {
		l.Detach(ctx)
	}
	if err := i.log.Stage(time.Now()); err != nil {
		return fmt.Errorf("informer %s: put what is pending on disk: %w", i.cfg.Name, err)
	}
	return nil
}
