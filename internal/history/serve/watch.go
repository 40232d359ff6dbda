package serve

import (
	"cmp"
	"container/heap"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

type watcher struct {
	q         *request
	t         *resourceType
	namespace string // "*" for all
	selection selection
	form      form
	bookmarks bool
	sent      uint64 // the highest version that was sent
	rows      int
}

// errClient ends a watch whose client has gone.
var errClient = errors.New("the client has gone")

// bookmarkEvery is how often a watch without changes gives a sign of life.
const bookmarkEvery = time.Minute

func (q *request) watch(
	t *resourceType, namespace string, s selection, o *internalversion.ListOptions,
) {
	from, err := parseVersion(o.ResourceVersion, math.MaxUint64)
	if err != nil {
		q.refuseFor(err)
		return
	}
	ctx := q.r.Context()
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*o.TimeoutSeconds)*time.Second)
		defer cancel()
	}
	form, _ := formOf(q.r)
	w := &watcher{
		q: q, t: t, namespace: cmp.Or(namespace, "*"), selection: s, form: form,
		bookmarks: o.AllowWatchBookmarks,
	}
	version, err := q.servedVersion()
	if err == nil {
		err = q.warnState(query.StateQuery{Units: t.units, Namespace: w.namespace, At: q.point()})
	}
	if err != nil {
		q.fail(err)
		return
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(http.StatusOK)
	w.flush()
	switch {
	case o.SendInitialEvents != nil && *o.SendInitialEvents:
		if err = w.state(ctx); err == nil {
			err = w.bookmark(version, true)
		}
		from = version
	case from == 0: // what comes from now on
		from = version
	case w.isGone(from, version):
		status := goneVersion(from).ErrStatus
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		body, _ := json.Marshal(&status)      // it has texts only
		_ = w.line(watchEvent("ERROR", body)) // the client has gone
		return
	}
	w.sent = max(w.sent, from)
	if err == nil && q.cfg.Live {
		err = w.stream(ctx, from)
	} else if err == nil {
		err = w.replay(ctx, from, version)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, errClient) {
		q.cfg.Log.Error("a watch was broken off", "resource", t.Resource, "err", err)
		panic(http.ErrAbortHandler)
	}
}

// isGone reports whether retention has removed what follows a version.
func (w *watcher) isGone(from, version uint64) bool {
	horizon, err := w.q.history.Coverage.Horizon()
	if err != nil || horizon.IsZero() || from >= version {
		return false
	}
	entries := w.q.history.Timeline.Entries(w.q.cfg.Cluster, "*", horizon, time.Time{}, nil)
	for e, err := range entries {
		return err == nil && from < e.Number()
	}
	return false
}

// flush leaves its error to the next write.
func (w *watcher) flush() { _ = http.NewResponseController(w.q.w).Flush() }

func (w *watcher) line(line []byte) error {
	if _, err := w.q.w.Write(line); err != nil {
		return errClient
	}
	return nil
}

// state sends all objects as they are at the point.
func (w *watcher) state(ctx context.Context) error {
	for v, err := range w.q.inOrder(w.t, query.StateQuery{
		Units: w.t.units, Namespace: w.namespace, At: w.q.point(), By: w.selection.byIndex(w.t),
	}) {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		if w.selection.matches(v) {
			if err := w.send("ADDED", v); err != nil {
				return err
			}
		}
	}
	w.flush()
	return nil
}

// send sends a version, where the object is known.
func (w *watcher) send(kind string, v *query.Version) error {
	if v.Form() != record.FormObject {
		return nil
	}
	body, err := w.q.encode(w.t, v, w.form)
	if err != nil {
		return err
	}
	if w.form == asTable {
		body = appendTable(nil, w.t, v.Event.ResourceVersion, [][]byte{body}, w.rows == 0)
		w.rows++
	}
	w.sent = max(w.sent, v.Number())
	return w.line(watchEvent(kind, body))
}

// bookmark says up to which version everything was sent.
func (w *watcher) bookmark(version uint64, initial bool) error {
	if !w.bookmarks {
		return nil
	}
	annotations := "{}"
	if initial {
		annotations = `{"k8s.io/initial-events-end":"true"}`
	}
	metadata := fmt.Sprintf(`{"resourceVersion":"%d","creationTimestamp":null,"annotations":%s}`,
		max(version, w.sent), annotations)
	object := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s}`, w.t.Kind, w.t.apiVersion(),
		metadata)
	switch w.form {
	case asObject:
	case asMetadata, asMetadataList:
		object = fmt.Appendf(nil,
			`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}`, metadata)
	case asTable:
		row := fmt.Appendf(nil,
			`{"cells":[],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}}`, metadata)
		object = appendTable(nil, w.t, strconv.FormatUint(max(version, w.sent), 10), [][]byte{row},
			false)
	}
	err := w.line(watchEvent("BOOKMARK", object))
	w.flush()
	return err
}

// idle gives signs of life until the watch ends.
func (w *watcher) idle(ctx context.Context) error {
	w.flush()
	for {
		if err := w.bookmark(w.sent, false); err != nil {
			return err
		}
		if err := ratelimit.Sleep(ctx, bookmarkEvery); err != nil {
			return err
		}
	}
}

// change sends what a change means to a client with this selection.
func (w *watcher) change(v, before *query.Version) error {
	was := before != nil && w.selection.matches(before)
	is := !v.Deleted() && w.selection.matches(v)
	switch {
	case is && was:
		return w.send("MODIFIED", v)
	case is:
		return w.send("ADDED", v)
	case was || v.Deleted() && before == nil && w.selection.matches(v):
		return w.send("DELETED", v)
	}
	return nil
}

// reorderSeconds is how far times within a resource may disagree with the order of its versions: a
// field manager's times are whole seconds, those of deletes are of when they were observed. Of one
// name the order of versions is kept however far its times disagree (query.Step.Overtaken).
const reorderSeconds = 5

// replay sends what came after a version, at the recorded pace: counted from the point for a client
// that has its state, and from where the first client began for one that comes back.
func (w *watcher) replay(ctx context.Context, from, version uint64) error {
	began := w.start(from == version)
	zero := w.q.cfg.At.At // where the pace counts from
	if w.q.cfg.At.Version > 0 {
		var err error
		if zero, err = w.q.history.Timeline.TimeOf(w.q.cfg.Cluster, version); err != nil {
			return err
		}
	}
	since := zero.Add(-reorderSeconds * time.Second)
	if from < version {
		since = time.Time{} // it is not known when that was
	}
	byTime := from == version && w.q.cfg.At.Version == 0 // the client has the state of a time
	pending := &steps{}
	give := func(until time.Time) error {
		for pending.Len() > 0 && ((*pending)[0].Time.Before(until) || until.IsZero()) {
			e := heap.Pop(pending).(query.Step) //nolint:forcetypeassert // nothing else is in it
			if err := w.due(ctx, began, e.Time.Sub(zero)); err != nil {
				return err
			}
			if e.Ended != nil && (byTime || e.Ended.Number() > from) {
				if err := w.change(e.Ended, e.Last); err != nil {
					return err
				}
			}
			if err := w.change(e.Version, e.Before); err != nil {
				return err
			}
		}
		return nil
	}
	wanted := func(u *record.Unit) bool { return slices.Contains(w.t.units, u) }
	steps := w.q.history.Timeline.Steps(w.q.cfg.Cluster, w.namespace, since, time.Time{}, wanted)
	for e, err := range steps {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		if byTime && !e.Time.After(w.q.cfg.At.At) || !byTime && e.Number() <= from {
			continue
		}
		if e.Overtaken { // in the state already, or sent with its successor as Ended
			continue
		}
		heap.Push(pending, e)
		if err := give(e.Time.Add(-reorderSeconds * time.Second)); err != nil {
			return err
		}
	}
	if err := give(time.Time{}); err != nil {
		return err
	}
	return w.idle(ctx)
}

// start returns when the replay began.
func (w *watcher) start(fresh bool) time.Time {
	now := time.Now()
	w.q.server.mu.Lock()
	defer w.q.server.mu.Unlock()
	if w.q.server.began.IsZero() {
		w.q.server.began = now
	}
	if fresh {
		return now
	}
	return w.q.server.began
}

// due waits until a change that came after the point by so much is to be sent.
func (w *watcher) due(ctx context.Context, began time.Time, after time.Duration) error {
	if w.q.cfg.Speed == 0 {
		return nil
	}
	wait := time.Until(began.Add(time.Duration(float64(after) / w.q.cfg.Speed)))
	if wait <= 0 {
		return nil
	}
	w.flush()
	for wait > bookmarkEvery { // signs of life
		if err := ratelimit.Sleep(ctx, bookmarkEvery); err != nil {
			return err
		}
		if err := w.bookmark(w.sent, false); err != nil {
			return err
		}
		wait -= bookmarkEvery
	}
	return ratelimit.Sleep(ctx, wait)
}

// steps are changes, the lowest version first.
type steps []query.Step

func (h steps) Len() int { return len(h) }
func (h steps) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].Number(), h[j].Number()), h[i].Time.Compare(h[j].Time)) < 0
}
func (h steps) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

//nolint:forcetypeassert // heap's way
func (h *steps) Push(x any) { *h = append(*h, x.(query.Step)) }

func (h *steps) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// stream sends what a history that is being written gets: it compares the newest version of each
// object with the one that was sent.
//
// An event is stored when it arrives, so a client that has the list of a version may lack lower
// ones that came after the list. So the first comparison of a client with bookmarks, which keeps a
// state (client-go's informers), is with the last list that the history has: what the client knows
// already changes nothing. One without (kubectl get --watch) shows each event, and gets what is
// behind its version.
func (w *watcher) stream(ctx context.Context, from uint64) error {
	if w.bookmarks {
		listed, err := w.q.history.Coverage.ListedVersion(w.t.units)
		if err != nil {
			return err
		}
		from = min(from, listed)
	}
	known := map[query.Object]query.Head{}
	first := true
	quiet := time.Now()
	for {
		n, err := w.differences(ctx, known, from, first)
		if err != nil {
			return err
		}
		first = false
		if n > 0 {
			w.flush()
			quiet = time.Now()
		} else if time.Since(quiet) > bookmarkEvery {
			if err := w.bookmark(w.sent, false); err != nil {
				return err
			}
			quiet = time.Now()
		}
		if err := ratelimit.Sleep(ctx, w.q.cfg.Poll); err != nil {
			return err
		}
	}
}

// differences sends what is newer than what is known, and what is newer than a version the first
// time.
func (w *watcher) differences(
	ctx context.Context, known map[query.Object]query.Head, from uint64, first bool,
) (n int, err error) {
	h, release, err := w.q.cfg.Open()
	if err != nil {
		return 0, err
	}
	defer release()
	w.q.nameUsers(h)
	for head, err := range h.Objects.Heads(w.t.units, w.namespace) {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return n, err
		}
		before, was := known[head.Object]
		if was && head == before {
			continue
		}
		known[head.Object] = head
		if first && head.Version <= from || !was && !first && head.Deleted {
			continue
		}
		v, err := h.Objects.At(&head.Object, query.Point{})
		if err != nil || v == nil {
			return n, err
		}
		old, err := h.Objects.VersionBefore(v)
		if err != nil {
			return n, err
		}
		if was && old == nil && !before.Deleted {
			old = v // what it was is not kept, but that it was there
		}
		n++
		if err := w.change(v, old); err != nil {
			return n, err
		}
	}
	return n, nil
}
