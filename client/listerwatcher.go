package client

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Options of a ListerWatcher. The zero value is all objects, unstructured.
type Options struct {
	// Namespace of the objects; "" for all.
	Namespace string
	// Scheme has the types of the objects. nil: they are *unstructured.Unstructured.
	Scheme *runtime.Scheme
}

// ListerWatcher returns what a reflector needs: pass it to cache.NewSharedIndexInformer. It waits
// until everything that was in the source has been read, so Run must be running. The error is an
// UnknownResourceError where the source has nothing of the resource. Each informer needs one of its
// own.
func (c *Client) ListerWatcher(
	ctx context.Context, resource schema.GroupResource, options Options,
) (*ListerWatcher, error) {
	has, err := c.Resources(ctx)
	if err != nil {
		return nil, err
	}
	if slices.Contains(has, resource) {
		return &ListerWatcher{client: c, resource: resource, options: options}, nil
	}
	return nil, &UnknownResourceError{Source: c.source.String(), Resource: resource, Has: has}
}

// ListerWatcher is what the reflector of one informer lists and watches. A watch continues exactly
// where the list before it was: versions of objects are no positions in the source, so a watch
// without a list before it is refused as 410.
type ListerWatcher struct {
	client   *Client
	resource schema.GroupResource
	options  Options

	mu     sync.Mutex
	listed *cursor // where the last list was; guarded by mu, taken by the next watch
}

// cursor is a place among the changes of a collection.
type cursor struct {
	epoch int
	next  uint64
}

var (
	_ cache.ListerWatcher            = (*ListerWatcher)(nil)
	_ cache.ListerWatcherWithContext = (*ListerWatcher)(nil)
)

// IsWatchListSemanticsUnSupported has client-go list, and not ask for a WatchList.
func (*ListerWatcher) IsWatchListSemanticsUnSupported() bool { return true }

// List is ListWithContext without a context.
func (lw *ListerWatcher) List(options metav1.ListOptions) (runtime.Object, error) {
	return lw.ListWithContext(context.Background(), options)
}

// Watch is WatchWithContext without a context.
func (lw *ListerWatcher) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return lw.WatchWithContext(context.Background(), options)
}

// ListWithContext waits until the collection is complete.
func (lw *ListerWatcher) ListWithContext(
	ctx context.Context, options metav1.ListOptions,
) (runtime.Object, error) {
	if err := supported(options); err != nil {
		return nil, err
	}
	objects, version, at, err := lw.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, o := range objects {
		decoded, err := o.as(lw.options.Scheme)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", o.subject, err)
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: decoded})
	}
	lw.mu.Lock()
	defer lw.mu.Unlock()
	lw.listed = &at
	return list, nil
}

// supported refuses selectors: what they leave out would look as if it did not exist.
func supported(options metav1.ListOptions) error {
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil || !selector.Empty() || options.FieldSelector != "" {
		return apierrors.NewBadRequest("the bridge's client has no selectors: select in the informer " +
			"of the bridge, or in the handler")
	}
	return nil
}

// snapshot returns the complete state, and the place behind it.
func (lw *ListerWatcher) snapshot(
	ctx context.Context,
) (objects []*object, version string, at cursor, err error) {
	c := lw.client
	c.mu.Lock()
	defer c.mu.Unlock()
	var co *collection
	if err := c.await(ctx, func() bool {
		co = c.collections[lw.resource]
		return c.caughtUp && co != nil && (co.complete || co.lacking != "")
	}); err != nil {
		return nil, "", at, err
	}
	if c.ended != nil {
		return nil, "", at, c.ended // nobody keeps the state in sync any more
	}
	if co.lacking != "" {
		return nil, "", at, fmt.Errorf("%s has no complete list of %s: %s; read a bucket, or send a "+
			"snapshot with bridge snapshot", c.source, lw.resource, co.lacking)
	}
	for _, o := range co.objects {
		if lw.selects(o) {
			objects = append(objects, o)
		}
	}
	return objects, co.listVersion(), cursor{co.epoch, co.begin + uint64(len(co.ring))}, nil
}

func (lw *ListerWatcher) selects(o *object) bool {
	return lw.options.Namespace == "" || lw.options.Namespace == o.namespace
}

// WatchWithContext continues behind the last list.
func (lw *ListerWatcher) WatchWithContext(
	ctx context.Context, _ metav1.ListOptions,
) (watch.Interface, error) {
	lw.mu.Lock()
	at := lw.listed
	lw.listed = nil
	lw.mu.Unlock()
	if at == nil {
		return nil, expired()
	}
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{lw: lw, at: *at, results: make(chan watch.Event), stop: stop}
	go w.run(ctx)
	return w, nil
}

func expired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("changes may be missing: list again")
}

// watcher is one watch.
type watcher struct {
	lw      *ListerWatcher
	at      cursor // owned by run
	results chan watch.Event
	stop    context.CancelFunc
}

func (w *watcher) Stop() { w.stop() }

func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

func (w *watcher) run(ctx context.Context) {
	defer close(w.results)
	for {
		changes, err := w.next(ctx)
		if err != nil {
			w.send(ctx, watch.Event{Type: watch.Error, Object: &err.ErrStatus})
			return
		}
		if ctx.Err() != nil {
			return
		}
		for _, ch := range changes {
			if !w.lw.selects(ch.object) {
				continue
			}
			decoded, err := ch.object.as(w.lw.options.Scheme)
			if err != nil {
				status := apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "watch",
					w.lw.resource, ch.object.subject, err.Error(), 0, true)
				decoded, ch.op = &status.ErrStatus, watch.Error
			}
			if !w.send(ctx, watch.Event{Type: ch.op, Object: decoded}) {
				return
			}
		}
	}
}

func (w *watcher) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.results <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// next waits for changes. The error ends the watch.
func (w *watcher) next(ctx context.Context) (changes []change, gone *apierrors.StatusError) {
	const most = 256
	c := w.lw.client
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		co := c.collections[w.lw.resource]
		switch {
		case ctx.Err() != nil:
			return nil, nil
		case co == nil, co.epoch != w.at.epoch, w.at.next < co.begin:
			return nil, expired()
		}
		if from := int(w.at.next - co.begin); from < len(co.ring) {
			changes = append(changes, co.ring[from:min(len(co.ring), from+most)]...)
			w.at.next += uint64(len(changes))
			return changes, nil
		}
		if err := c.awaitChange(ctx); err != nil && ctx.Err() == nil {
			return nil, expired() // the list that follows says why
		}
	}
}

// awaitChange waits for the next change. c.mu is held, and released meanwhile.
func (c *Client) awaitChange(ctx context.Context) error {
	first := true
	return c.await(ctx, func() bool {
		waits := first
		first = false
		return !waits
	})
}
