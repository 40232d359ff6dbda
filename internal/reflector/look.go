package reflector

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubebridge/bridge/internal/resource"
)

// ErrNotByName is returned when the API server does not select by name: it answers with others.
var ErrNotByName = errors.New("the API server does not select by metadata.name")

// PageSize is how many items LookPage asks for at once.
func (r *Reflector) PageSize() int { return r.cfg.PageSize }

// LookPage reads one page of the current state, beside the watch: the Store gets nothing of it, and
// it changes nothing else. token is "" for the first page, and next for the one after it, "" after
// the last. Pages need not be of one version. each gets each object that could be understood, as
// Parse makes it, also those that the Store does not want; unread counts the others. It may be
// called from any goroutine; an error of each ends it.
func (r *Reflector) LookPage(
	ctx context.Context, token string, each func(*resource.Object) error,
) (next string, unread int, err error) {
	q := r.query()
	q.Set("limit", strconv.Itoa(r.cfg.PageSize))
	if token != "" {
		q.Set("continue", token)
	}
	p, unread, err := r.readList(ctx, r.url, q, each)
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && isExpired(err) &&
		status.ErrStatus.Continue != "" {
		return status.ErrStatus.Continue, unread, nil // the rest, of a later version
	}
	return p.next, unread, err
}

// LookFor is LookPage of one object. It needs no right beyond that to list.
func (r *Reflector) LookFor(
	ctx context.Context, key resource.Key, each func(*resource.Object) error,
) (unread int, err error) {
	namespace, name := key.Split()
	q := r.query()
	byName := "metadata.name=" + name
	if r.cfg.FieldSelector != "" {
		byName = r.cfg.FieldSelector + "," + byName
	}
	q.Set("fieldSelector", byName)
	q.Set("limit", "2") // a server that does not know the selector must not send everything
	u := r.cfg.Client.Base.JoinPath(r.cfg.Type.CollectionPath(namespace))
	_, unread, err = r.readList(ctx, u, q, func(obj *resource.Object) error {
		if obj.Key() != key {
			return fmt.Errorf("%w: asked for %s, it gave %s", ErrNotByName, key, obj.Key())
		}
		return each(obj)
	})
	return unread, err
}

// readList reads the answer to one list request.
func (r *Reflector) readList(
	ctx context.Context, from *url.URL, q url.Values, each func(*resource.Object) error,
) (p page, unread int, err error) {
	s, err := r.getFrom(ctx, from, q, patience{silence: r.cfg.ListTimeout})
	if err != nil {
		return p, 0, fmt.Errorf("list %s: %w", r.cfg.Type, err)
	}
	defer s.close()
	v := newValues(s, r.cfg.MaxFrame)
	item := func() error {
		s.alive()
		obj, _, err := v.object(&r.cfg.Parse)
		if v.Err() != nil {
			return v.Err()
		}
		if err != nil {
			unread++ // the watch has reported it
			return nil
		}
		return each(obj)
	}
	if p, err = readPage(v, item, nil); err != nil {
		return p, unread, fmt.Errorf("list %s: %w", r.cfg.Type, err)
	}
	return p, unread, nil
}

// RetryAfter is how long the API server asked clients to wait by an error; zero when it did not.
func RetryAfter(err error) time.Duration { return retryAfter(err) }
