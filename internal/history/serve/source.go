package serve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
)

// Source lends a history that others may write meanwhile.
type Source struct {
	dir    string
	follow bool

	mu      sync.Mutex // guards what follows
	current *lent
	seen    string // what the directory looked like
}

// lent is a history, and how many use it.
type lent struct {
	db    *history.DB
	users int // guarded by Source.mu
	old   bool
}

// NewSource opens the history in dir. With follow it is opened again when something was written.
func NewSource(dir string, follow bool) (*Source, error) {
	s := &Source{dir: dir, follow: follow}
	_, release, err := s.Open()
	if err != nil {
		return nil, err
	}
	release()
	return s, nil
}

// Open lends the history. Call release when it is not used any more.
func (s *Source) Open() (h *query.Questions, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.follow {
		if err := s.refresh(); err != nil {
			return nil, nil, err
		}
	}
	l := s.current
	l.users++
	return l.db.Questions, func() { s.giveBack(l) }, nil
}

// refresh opens the history again where it has changed. Called with mu held.
func (s *Source) refresh() error {
	seen, err := lookOf(s.dir)
	if s.current != nil && (err != nil || seen == s.seen) {
		return nil //nolint:nilerr // what is open still answers
	}
	db, err := history.ReadBeside(history.Options{Dir: s.dir})
	if err != nil && s.current != nil {
		return nil //nolint:nilerr // the writer has just changed it: the next request tries again
	}
	if err != nil {
		return err
	}
	if s.current != nil {
		s.current.old = true
		s.closeUnused(s.current)
	}
	s.current, s.seen = &lent{db: db}, seen
	return nil
}

func (s *Source) giveBack(l *lent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	s.closeUnused(l)
}

// closeUnused closes a history that nobody will ask any more. Called with mu held.
func (s *Source) closeUnused(l *lent) {
	if l.old && l.users == 0 {
		_ = l.db.Close() // it was only read
	}
}

// Close closes the history, once those that use it have given it back.
func (s *Source) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil
	}
	s.current.old = true
	if s.current.users > 0 {
		return errors.New("the history is still in use")
	}
	return s.current.db.Close()
}

// lookOf changes when something is written.
func lookOf(dir string) (string, error) {
	var look strings.Builder
	for _, pattern := range []string{"*.log", "MANIFEST-*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&look, "%s %d %d\n", info.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	return look.String(), nil
}
