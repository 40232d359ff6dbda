package testkit

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubebridge/bridge/internal/resource"
)

// watcher is one open watch.
type watcher struct {
	sel        selection
	from       int64
	bookmarks  bool
	initialEnd *time.Timer   // that will end the initial events; nil for none; guarded by Server.mu
	queue      [][]byte      // guarded by Server.mu
	ending     *ending       // guarded by Server.mu
	wake       chan struct{} // holds one when there is something to do
}

// ending is how a watch ends.
type ending struct{ cut bool }

func (w *watcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) send(frame []byte) {
	w.queue = append(w.queue, frame)
	w.notify()
}

// offer sends a change as this watch sees it: an object that comes into the selection is added, one
// that leaves it deleted.
func (w *watcher) offer(s *Server, c change) {
	if c.version <= w.from {
		return
	}
	before, after := w.sel.matches(c.key, c.before), w.sel.matches(c.key, c.after)
	switch {
	case after && before:
		w.send(s.frame(watch.Modified, c.after.content, c.version))
	case after:
		w.send(s.frame(watch.Added, c.after.content, c.version))
	case before:
		w.send(s.frame(watch.Deleted, c.before.content, c.version))
	}
}

func (s *Server) frame(event watch.EventType, content map[string]any, version int64) []byte {
	return Frame(event, s.render(content, version, false))
}

// Frame is a watch frame around an object's JSON.
func Frame(event watch.EventType, object []byte) []byte {
	return append(renderObject([]member{{"type", mustMarshal(event)}, {"object", object}}), '\n')
}

func (s *Server) bookmarkFrame(initialEnd bool) []byte {
	metadata := map[string]any{"creationTimestamp": nil}
	if initialEnd {
		metadata["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	return s.frame(watch.Bookmark, map[string]any{"metadata": metadata}, s.revision)
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, sel selection) {
	watcher, zip, status := s.startWatch(r.URL.Query(), sel)
	if status != nil {
		writeStatus(w, status)
		return
	}
	defer s.stopWatch(watcher)
	s.pump(w, r, watcher, zip)
}

func (s *Server) startWatch(q url.Values, sel selection) (*watcher, bool, *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watcher{
		sel:       sel,
		from:      s.parseVersion(resource.Version(q.Get("resourceVersion"))),
		bookmarks: q.Get("allowWatchBookmarks") == "true",
		wake:      make(chan struct{}, 1),
	}
	var status *metav1.Status
	if q.Get("sendInitialEvents") == "true" {
		status = s.sendInitial(w, q)
	} else {
		status = s.sendHistory(w, q)
	}
	if status != nil {
		return nil, false, status
	}
	s.watchers[w] = true
	return w, s.features.Gzip, nil
}

func (s *Server) sendInitial(w *watcher, q url.Values) *metav1.Status {
	switch {
	case s.features.NoWatchList:
		return invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch " +
			"unless the WatchList feature gate is enabled")
	case q.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchNotOlderThan) ||
		!w.bookmarks:
		return invalid("sendInitialEvents needs resourceVersionMatch=NotOlderThan and " +
			"allowWatchBookmarks=true")
	case w.from > s.revision:
		return tooLarge(w.from, s.revision)
	}
	if s.features.InitialAsOf != "" {
		s.sendEarlier(w, s.parseVersion(s.features.InitialAsOf))
	} else {
		s.sendState(w)
	}
	switch {
	case s.features.NoInitialEnd:
	case s.features.InitialEndDelay > 0:
		w.initialEnd = time.AfterFunc(s.features.InitialEndDelay, func() { s.sendInitialEnd(w) })
	default:
		w.send(s.bookmarkFrame(true))
	}
	return nil
}

// sendInitialEnd ends the initial events of a watch that is open still.
func (s *Server) sendInitialEnd(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.initialEnd = nil
	if s.watchers[w] && w.ending == nil {
		w.send(s.bookmarkFrame(true))
	}
}

func (s *Server) sendState(w *watcher) {
	w.from = s.revision
	for _, key := range s.sortedKeys() {
		if r := s.objects[key]; w.sel.matches(key, r) {
			w.send(s.frame(watch.Added, r.content, r.version))
		}
	}
}

// sendEarlier begins with the state as of a version, and sends what came since.
func (s *Server) sendEarlier(w *watcher, version int64) {
	objects := s.objectsAt(version)
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if r := objects[key]; w.sel.matches(key, r) {
			w.send(s.frame(watch.Added, r.content, r.version))
		}
	}
	w.from = version
	for _, c := range s.history {
		w.offer(s, c)
	}
}

// sendHistory starts where the client wants. A version from the future is taken in silence, as
// kube-apiserver does.
func (s *Server) sendHistory(w *watcher, q url.Values) *metav1.Status {
	switch {
	case q.Get("resourceVersionMatch") != "":
		return invalid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is " +
			"provided")
	case w.from <= 0:
		s.sendState(w)
	case w.from >= s.compacted:
		for _, c := range s.history {
			w.offer(s, c)
		}
	case s.features.EmptyWhenExpired:
		w.ending = new(ending)
		w.notify()
	default:
		return NewStatus(http.StatusGone, metav1.StatusReasonExpired)
	}
	return nil
}

func (s *Server) stopWatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
	if w.initialEnd != nil {
		w.initialEnd.Stop()
	}
}

// pump writes what the watch has to send until it ends.
func (s *Server) pump(w http.ResponseWriter, r *http.Request, watch *watcher, zip bool) {
	var timeout <-chan time.Time
	if n, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); n > 0 && !s.ignoresTimeout() {
		t := time.NewTimer(time.Duration(n) * time.Second)
		defer t.Stop()
		timeout = t.C
	}
	flush := func() { _ = http.NewResponseController(w).Flush() }
	w.Header().Set("Content-Type", "application/json")
	if !zip {
		flush()
	}
	for {
		frames, end := s.nextFrames(watch)
		for _, frame := range frames {
			out := answer(w, zip)
			_, _ = out.Write(frame) // the client may be gone: its context says so
			_ = out.Close()
			flush()
		}
		if end != nil {
			if end.cut {
				panic(http.ErrAbortHandler)
			}
			return
		}
		select {
		case <-watch.wake:
		case <-timeout:
			return
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}

func (s *Server) ignoresTimeout() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.features.IgnoresTimeout
}

func (s *Server) nextFrames(w *watcher) ([][]byte, *ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	frames := w.queue
	w.queue = nil
	if s.features.Pretty {
		for i := range frames {
			frames[i] = pretty(frames[i])
		}
	}
	return frames, w.ending
}
