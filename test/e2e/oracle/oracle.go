package oracle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Revision is what a key became.
type Revision struct {
	// Era counts the restores before it.
	Era      int
	Revision int64
	Key      string // "/registry/configmaps/shop/web"
	Value    []byte // nil: the key was deleted
	// Seen is when the oracle read it, a moment after etcd made it.
	Seen time.Time
}

// Oracle follows one etcd. Restored, Pause and Close are called by one goroutine.
type Oracle struct {
	client *clientv3.Client
	cancel context.CancelFunc
	ended  chan struct{} // closed when the watch of this era has ended
	era    int

	mu        sync.Mutex
	revisions []Revision    // guarded by mu
	reached   int64         // guarded by mu: the last revision of this era that was read
	moved     chan struct{} // guarded by mu: closed when reached changes, or err
	err       error         // guarded by mu: why there is a hole
}

// Open begins to follow an etcd, from its next revision on.
func Open(ctx context.Context, url string) (*Oracle, error) {
	if url == "" {
		return nil, errors.New("the oracle needs the client URL of etcd, and has none")
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("etcd %s: %w", url, err)
	}
	o := &Oracle{client: client, moved: make(chan struct{})}
	now, err := o.Now(ctx)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	o.follow(ctx, now)
	return o, nil
}

// Now returns etcd's newest revision.
func (o *Oracle) Now(ctx context.Context) (int64, error) {
	answer, err := o.client.Get(ctx, "/", clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("etcd: %w", err)
	}
	return answer.Header.Revision, nil
}

// Reach waits until everything was read that etcd has by now, and returns the last revision.
func (o *Oracle) Reach(ctx context.Context) (int64, error) {
	now, err := o.Now(ctx)
	if err != nil {
		return 0, err
	}
	for {
		o.mu.Lock()
		reached, moved, err := o.reached, o.moved, o.err
		o.mu.Unlock()
		if err != nil || reached >= now {
			return now, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, fmt.Errorf("revision %d of %d was read: %w", reached, now, context.Cause(ctx))
		}
	}
}

// Pause reads what etcd has by now, and stops before etcd is stopped: a watch that continued in a
// restored etcd would leave out revisions without a word.
func (o *Oracle) Pause(ctx context.Context) (int64, error) {
	last, err := o.Reach(ctx)
	o.cancel()
	<-o.ended
	return last, err
}

// Restored continues behind a revision in an etcd that was restored from a backup of it.
func (o *Oracle) Restored(ctx context.Context, behind int64) {
	o.era++
	o.follow(ctx, behind)
}

// Era is how many restores there were.
func (o *Oracle) Era() int { return o.era }

// Close ends the watch.
func (o *Oracle) Close() error {
	o.cancel()
	<-o.ended
	return o.client.Close()
}

// Revisions returns everything that was read of keys with a prefix, in the order of etcd.
func (o *Oracle) Revisions(prefix string) (list []Revision) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.revisions {
		if strings.HasPrefix(r.Key, prefix) {
			list = append(list, r)
		}
	}
	return list
}

// Exists returns the keys with a prefix that etcd has now.
func (o *Oracle) Exists(ctx context.Context, prefix string) (keys []string, err error) {
	answer, err := o.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	slices.Sort(keys)
	return keys, nil
}

// follow watches all keys behind a revision.
func (o *Oracle) follow(ctx context.Context, behind int64) {
	ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	o.ended = make(chan struct{})
	o.mu.Lock()
	o.reached = behind
	o.mu.Unlock()
	// A client's context names its stream of watches: one that has no leader is an error.
	watch := o.client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(behind+1))
	era, ended := o.era, o.ended
	go func() {
		defer close(ended)
		for answer := range watch {
			if err := answer.Err(); err != nil {
				o.fail(err)
				return
			}
			o.add(era, answer.Events)
		}
		if ctx.Err() == nil {
			o.fail(errors.New("the watch of etcd has ended"))
		}
	}()
}

func (o *Oracle) add(era int, events []*clientv3.Event) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range events {
		r := Revision{Era: era, Revision: e.Kv.ModRevision, Key: string(e.Kv.Key), Seen: now}
		if e.Type == clientv3.EventTypePut {
			r.Value = e.Kv.Value
		}
		o.revisions = append(o.revisions, r)
		o.reached = r.Revision
	}
	o.wake()
}

func (o *Oracle) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = errors.Join(o.err, fmt.Errorf("watch of etcd: %w", err))
	o.wake()
}

// wake wakes who waits. The caller holds mu.
func (o *Oracle) wake() {
	close(o.moved)
	o.moved = make(chan struct{})
}
