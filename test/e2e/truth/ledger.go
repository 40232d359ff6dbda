package truth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/client-go/rest"
)

// Ledger holds what was seen. Its methods may be called concurrently.
type Ledger struct {
	client *http.Client
	base   string
	wg     sync.WaitGroup
	cancel context.CancelFunc

	mu      sync.Mutex
	changes []Change // guarded by mu
	err     error    // guarded by mu: why it is no witness any more
	latest  error    // guarded by mu: why a watch has not begun yet
}

// Watch begins to watch the collections, and returns when it has all that exist. It watches until
// Stop is called.
func Watch(ctx context.Context, config *rest.Config, collections ...Collection) (*Ledger, error) {
	return watch(ctx, config, false, collections)
}

// WatchFromNow is as Watch, but what exists already does not count.
func WatchFromNow(ctx context.Context, config *rest.Config, collections ...Collection) (*Ledger, error) {
	return watch(ctx, config, true, collections)
}

func watch(ctx context.Context, config *rest.Config, fromNow bool, collections []Collection) (*Ledger, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &Ledger{client: &http.Client{Transport: transport}, base: config.Host, cancel: cancel}
	synced := make(chan struct{}, len(collections))
	for _, c := range collections {
		l.wg.Go(func() {
			w := &watcher{Ledger: l, collection: c, fromNow: fromNow, synced: synced}
			if err := w.run(work); err != nil && work.Err() == nil {
				l.fail(fmt.Errorf("watch %s: %w", c, err))
			}
		})
	}
	for range collections {
		select {
		case <-synced:
		case <-ctx.Done():
			l.Stop()
			return nil, fmt.Errorf("the witness has not seen everything that exists: %w", errors.Join(context.Cause(ctx), l.Err(), l.delay()))
		}
	}
	return l, nil
}

// Stop ends the watches.
func (l *Ledger) Stop() {
	l.cancel()
	l.wg.Wait()
	l.client.CloseIdleConnections()
}

// Err says why the ledger has a hole; nil when it has none.
func (l *Ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Changes are all changes so far, those of one collection in the order in which they were sent.
func (l *Ledger) Changes() []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.changes)
}

// Take gives the changes since the last Take, and keeps none: hours have too many.
func (l *Ledger) Take() (changes []Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changes, l.changes = l.changes, nil
	return changes
}

// Len is how many changes there are so far.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.changes)
}

func (l *Ledger) add(changes ...Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = append(l.changes, changes...)
}

func (l *Ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.Join(l.err, err)
}

// note keeps the reason for which a watch has not begun yet.
func (l *Ledger) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = err
}

func (l *Ledger) delay() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// Alive are the objects that exist after all changes, each in its newest version, by collection and
// key.
func Alive(changes []Change) map[string]Change {
	alive := map[string]Change{}
	for _, ch := range changes {
		key := ch.Collection.String() + " " + ch.Key()
		if ch.Type == "DELETED" {
			delete(alive, key)
		} else {
			alive[key] = ch
		}
	}
	return alive
}
