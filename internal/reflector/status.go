package reflector

import (
	"maps"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Phase is what the reflector is doing.
type Phase string

const (
	Stopped    Phase = "stopped"   // not running yet, or ended
	Selecting  Phase = "selecting" // waiting for the selected namespaces
	Probing    Phase = "probing"   // asking for the server's version
	Listing    Phase = "listing"
	Watching   Phase = "watching"
	BackingOff Phase = "backing-off" // waiting after a failure
	Paused     Phase = "paused"      // by an operator
)

// Status is the state of the reflector at one moment.
type Status struct {
	Phase Phase
	// Version is the last one that the Store took: of an event, a bookmark or a complete list. ""
	// before the first.
	Version resource.Version
	// LastSeen is when the API server last sent an event, a bookmark or an item; zero before the
	// first.
	LastSeen time.Time
	// Opened is when the API server last accepted a watch, FirstOpened when it did so first; zero
	// before the first.
	Opened, FirstOpened time.Time
	// Reopened is when it accepted one after an interruption: what was made before may have become
	// known late. Zero while there was none.
	Reopened time.Time
	// Bookmarks is set once the API server has sent a bookmark in a watch: then a healthy watch is
	// never silent for long.
	Bookmarks bool
	// LastError is the failure that is being recovered from; "" when the last request succeeded.
	LastError string
	// NotFound: the failure is a 404, the API server does not serve the resource.
	NotFound bool
	// Versionless: the resource has never had a version, and can't be followed.
	Versionless bool
	// Relists counts how often everything known was replaced by a list, by reason, the first
	// snapshot ("initial") included.
	Relists map[string]int
	// Items is how many objects the current list, or else the last one, has handed on.
	Items int
	// Synced is set while the Store has the whole state, until everything has to be listed again.
	// It is set at the end of a complete list, or when a resumed watch has brought something or has
	// been open for a second. One from an expired version is not open for so long.
	Synced bool
}

// Quiet returns for how long the API server has sent nothing: no event, bookmark, or item of a
// list. Where it sends no bookmarks, a watch that it accepted counts too. Zero before the first.
func (s *Status) Quiet() time.Duration {
	last := s.LastSeen
	if !s.Bookmarks && s.Opened.After(last) {
		last = s.Opened
	}
	if last.IsZero() {
		return 0
	}
	return time.Since(last)
}

// leastInterruption is how long a watch may be interrupted without a word about that. A watch that
// ends in order is followed by another one within milliseconds.
const leastInterruption = time.Second

// status is the Status that Run updates and others read.
type status struct {
	mu sync.Mutex // guards now; held for a few assignments only
	s  Status
}

func (s *status) get() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.s
	out.Relists = maps.Clone(out.Relists)
	return out
}

func (s *status) set(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.s)
}

func (s *status) phase(p Phase) { s.set(func(s *Status) { s.Phase = p }) }

// seen records that the server sent something that counts.
func (r *Reflector) seen(change func(*Status)) {
	now := time.Now()
	r.metrics.lastSeen.Set(float64(now.UnixMilli()) / 1000)
	r.status.set(func(s *Status) {
		s.LastSeen, s.LastError, s.NotFound, s.Versionless = now, "", false, false
		change(s)
	})
}

// publishPosition shows the new position in the status.
func (r *Reflector) publishPosition() {
	r.seen(func(s *Status) {
		s.Synced = true
		if s.Version != r.state.at.version {
			s.Version, r.state.empty = r.state.at.version, emptyWatches{}
		}
	})
}

// storeError is an error of the Store, which ends Run; everything else is retried.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

func fromStore(err error) error {
	if err == nil {
		return nil
	}
	return &storeError{err}
}
