package reflector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/resource"
)

// beginReplace starts an attempt of a list.
func (r *Reflector) beginReplace(ctx context.Context) error {
	r.metrics.lists.Inc()
	r.quarantine.items, r.quarantine.unidentified = 0, false
	why := *r.state.relist
	if !why.Partial() {
		r.quarantine.skipped = map[resource.Key]bool{}
		why.Namespaces = r.nextSelection()
	}
	return fromStore(r.cfg.Store.BeginReplace(ctx, why))
}

// replace reads one item of a list and hands it on.
func (r *Reflector) replace(ctx context.Context, v *frameReader) error {
	obj, at, err := v.object(&r.cfg.Parse)
	if v.Err() != nil {
		return v.Err()
	}
	if refused, ok := errors.AsType[*resource.RefusedError](err); ok {
		return r.skipItem(ctx, refused, v.at(at))
	}
	c, refused := r.chooseAction(obj)
	if refused != nil {
		return r.skipItem(ctx, refused, v.at(at))
	}
	return r.replaceWith(ctx, obj, c)
}

func (r *Reflector) replaceWith(ctx context.Context, obj *resource.Object, c frameAction) error {
	if c == unwanted {
		return nil
	}
	r.state.setReached(obj)
	if c == unselected {
		return r.listUnselected(ctx, obj)
	}
	if err := r.cfg.Store.Replace(ctx, obj); err != nil {
		return fromStore(err)
	}
	r.metrics.listItems.Inc()
	r.seen(func(s *Status) { s.Items++ })
	return nil
}

// takeInitial hands on one of the initial events. They are the state as ADDED events, in no order
// of versions, then the changes until the bookmark that ends them. A deletion is handed on before
// that end: the list's version covers it, so no watch would bring it again. done is true for the
// last.
func (r *Reflector) takeInitial(ctx context.Context, f *frame) (done bool, err error) {
	switch f.event {
	case watch.Added, watch.Modified:
		return false, r.replaceWith(ctx, f.obj, f.action)
	case watch.Deleted:
		return false, r.deleteListed(ctx, f.obj, f.action)
	case watch.Bookmark:
		if !f.initialEnd {
			return false, errSwallowed // the server sends no other bookmark before it
		}
		return true, r.endRelist(ctx, f.version)
	default:
		return false, f.status
	}
}

// deleteListed hands on that an object was deleted before the list that had it has ended.
func (r *Reflector) deleteListed(ctx context.Context, obj *resource.Object, c frameAction) error {
	if c == unwanted {
		return nil
	}
	r.state.setReached(obj)
	if c == unselected {
		r.metrics.passed.Inc()
		return fromStore(r.cfg.Store.Unselected(ctx, obj, true))
	}
	r.metrics.deleted.Inc()
	return fromStore(r.cfg.Store.Delete(ctx, obj))
}

// endRelist is called when the list was complete.
func (r *Reflector) endRelist(ctx context.Context, v resource.Version) error {
	if r.state.relist.Partial() {
		return r.endMove(ctx, v)
	}
	if err := r.cfg.Store.EndReplace(ctx, v); err != nil {
		return fromStore(err)
	}
	if r.state.relist.Initial() && !r.isOfClock { // it was no list of an older version
		r.joinClock(ctx, v, r.listing)
	}
	level := slog.LevelInfo
	if r.state.relist.Initial() {
		level = slog.LevelDebug // a program that starts many reflectors logs about all of them
	}
	r.state = r.state.listed(at(v))
	r.state.unidentified = r.quarantine.unidentified
	r.selectionTaken()
	r.publishPosition()
	r.status.set(func(s *Status) { s.Synced = true })
	r.log.Log(ctx, level, "listed everything", "resource_version", v, "items", r.status.get().Items)
	return nil
}

// errEnough ends the reading of a list early.
var errEnough = errors.New("enough was read")

// page is the answer to one list request without its items.
type page struct {
	version  resource.Version
	next     string // continue token
	hasItems bool
}

// readPage reads the answer to a list request. It calls item before each item, and item reads that.
// It calls metadata, if not nil, with the page when the metadata was read, which for lists of
// custom resources is after the items.
func readPage(v *frameReader, item func() error, metadata func(page) error) (page, error) {
	var p page
	err := v.begin()
	for err == nil && v.Next('}') {
		v.release()
		err = p.member(v, item, metadata)
	}
	if err = cmp.Or(err, v.Err()); err != nil {
		return p, err
	}
	return p, p.finish(v)
}

func (p *page) member(v *frameReader, item func() error, metadata func(page) error) error {
	switch string(v.Key()) {
	case "items":
		if p.hasItems {
			return &unreadableError{err: resource.ErrDuplicate}
		}
		p.hasItems = true
		return readItems(v, item)
	case "metadata":
		if err := p.readMetadata(v); err != nil || metadata == nil {
			return err
		}
		return metadata(*p)
	case "kind":
		return checkListKind(v)
	default:
		_, err := v.value()
		return err
	}
}

// finish reports whether the page was complete and the only value in the answer.
func (p *page) finish(v *frameReader) error {
	v.release()
	v.begun = false
	switch atEnd := v.AtEnd(); {
	case !atEnd:
		return &unreadableError{err: errors.New("something follows the list in the answer")}
	case v.Ended() != io.EOF: //nolint:errorlint // one within another error is not the answer's end
		return v.Ended()
	case !p.hasItems:
		return &unreadableError{err: errors.New("list without items")}
	case p.version == "":
		return &unreadableError{err: errVersionless}
	}
	return nil
}

func readItems(v *frameReader, item func() error) error {
	if v.Peek() == 'n' { // an empty list of some servers
		_, err := v.value()
		return err
	}
	err := v.enter('[')
	for err == nil && v.Next(']') {
		v.release()
		err = item()
	}
	return cmp.Or(err, v.Err())
}

func (p *page) readMetadata(v *frameReader) error {
	raw, err := v.value()
	if err != nil {
		return err
	}
	if p.version != "" {
		return &unreadableError{err: resource.ErrDuplicate}
	}
	var m struct {
		ResourceVersion resource.Version `json:"resourceVersion"`
		Continue        string           `json:"continue"`
		ShardInfo       json.RawMessage  `json:"shardInfo"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return &unreadableError{err: fmt.Errorf("metadata of the list: %w", err)}
	}
	if err := m.ResourceVersion.Check(); err != nil {
		return &unreadableError{err: err}
	}
	if len(m.ShardInfo) > 0 && string(m.ShardInfo) != "null" {
		return &unreadableError{err: errors.New("the list is one shard of the collection, which " +
			"was not asked for")}
	}
	p.version, p.next = m.ResourceVersion, m.Continue
	return nil
}

// checkListKind refuses what a server may send in place of the requested list.
func checkListKind(v *frameReader) error {
	raw, err := v.value()
	if err != nil {
		return err
	}
	switch kind := string(raw); kind {
	case `"Table"`, `"PartialObjectMetadataList"`, `"Status"`:
		return &unreadableError{err: fmt.Errorf("%s in place of a list", kind)}
	}
	return nil
}

// ErrNotByName is returned when the API server does not select by name: it answers with others.
var ErrNotByName = errors.New("the API server does not select by metadata.name")

// PageSize returns how many items ReadPage asks for.
func (r *Reflector) PageSize() int { return r.cfg.PageSize }

// ReadPage reads one page of the current state, beside the watch: the Store gets nothing of it, and
// it changes nothing else. token is "" for the first page; next is the token of the page after it,
// "" after the last. Pages need not be of one version. each gets each readable object, as Parse
// makes it, even objects that the Store does not want; unread counts the others. ReadPage may be
// called from any goroutine; an error of each ends it.
func (r *Reflector) ReadPage(
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

// ReadObject is ReadPage for one object. It needs no right except to list.
func (r *Reflector) ReadObject(
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
	s, err := r.getFrom(ctx, from, q, answerTimeouts{silence: r.cfg.ListTimeout})
	if err != nil {
		return p, 0, fmt.Errorf("list %s: %w", r.cfg.Type, err)
	}
	defer s.close()
	v := newFrameReader(s, r.cfg.MaxFrame)
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

// RetryAfter returns how long an error of the API server asks clients to wait; zero when it does
// not.
func RetryAfter(err error) time.Duration { return retryAfter(err) }
