package testkit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Streams are the watches of a Server that are open.
type Streams struct{ server *Server }

// Count is how many there are.
func (s Streams) Count() int {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	return len(s.server.watchers)
}

// Bookmark sends the current version to all open watches that want bookmarks, but to those whose
// initial events are to be ended.
func (s Streams) Bookmark() {
	s.toAll(func() []byte { return s.server.bookmarkFrame(false) },
		func(w *watcher) bool { return w.bookmarks && w.initialEnd == nil })
}

// InitialEnd sends the bookmark that ends the initial events of a WatchList, where
// Features.NoInitialEnd held it back.
func (s Streams) InitialEnd() {
	s.toAll(func() []byte { return s.server.bookmarkFrame(true) },
		func(w *watcher) bool { return w.bookmarks })
}

// Raw sends bytes as they are to all open watches. They are in no history: a later watch does not
// see them.
func (s Streams) Raw(frame string) {
	s.toAll(func() []byte { return []byte(frame) }, func(*watcher) bool { return true })
}

// Error sends an ERROR event to all open watches, and leaves them open.
func (s Streams) Error(status *metav1.Status) {
	s.Raw(string(Frame(watch.Error, mustMarshal(status))))
}

func (s Streams) toAll(frame func() []byte, wants func(*watcher) bool) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	raw := frame()
	for w := range s.server.watchers {
		if wants(w) {
			w.send(raw)
		}
	}
}

// Close ends all open watches in good order, after what they still have to send.
func (s Streams) Close() { s.server.lockedEnd(ending{}) }

// Cut cuts the connections of all open watches.
func (s Streams) Cut() { s.server.lockedEnd(ending{cut: true}) }

func (s *Server) lockedEnd(e ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endWatchers(e)
}

func (s *Server) endWatchers(e ending) {
	for w := range s.watchers {
		w.ending = &e
		w.notify()
	}
}
