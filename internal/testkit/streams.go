package testkit

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Watching is how many watches are open.
func (s *Server) Watching() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers)
}

// Bookmark sends the current version to all open watches that want bookmarks, but to those whose
// initial events are to be ended.
func (s *Server) Bookmark() {
	s.toAll(func() []byte { return s.bookmarkFrame(false) },
		func(w *watcher) bool { return w.bookmarks && w.initialEnd == nil })
}

// InitialEnd sends the bookmark that ends the initial events of a WatchList, where
// Features.NoInitialEnd held it back.
func (s *Server) InitialEnd() {
	s.toAll(func() []byte { return s.bookmarkFrame(true) },
		func(w *watcher) bool { return w.bookmarks })
}

// Raw sends bytes as they are to all open watches. They are in no history: a later watch does not
// see them.
func (s *Server) Raw(frame string) {
	s.toAll(func() []byte { return []byte(frame) }, func(*watcher) bool { return true })
}

// Error sends an ERROR event to all open watches, and leaves them open.
func (s *Server) Error(status *metav1.Status) {
	s.Raw(string(Frame(watch.Error, mustMarshal(status))))
}

func (s *Server) toAll(frame func() []byte, wants func(*watcher) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw := frame()
	for w := range s.watchers {
		if wants(w) {
			w.send(raw)
		}
	}
}

// CloseWatches ends all open watches in good order, after what they still have to send.
func (s *Server) CloseWatches() { s.lockedEnd(ending{}) }

// CutWatches cuts the connections of all open watches.
func (s *Server) CutWatches() { s.lockedEnd(ending{cut: true}) }

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
