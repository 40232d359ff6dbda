package reflector

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Phase is what the reflector is doing.
type Phase string

// The phases.
const (
	Stopped    Phase = "stopped"   // not running yet, or ended
	Selecting  Phase = "selecting" // waiting for the selected namespaces
	Probing    Phase = "probing"   // asking for the server's version
	Listing    Phase = "listing"
	Watching   Phase = "watching"
	BackingOff Phase = "backing-off" // waiting after a failure
	Paused     Phase = "paused"      // by an operator
)

// Status is what the reflector is doing at one moment.
type Status struct {
	Phase Phase
	// Version is the last one that the Store took: of an event, a bookmark or a complete list. ""
	// before the first.
	Version resource.Version
	// LastSeen is when the API server last sent an event, a bookmark or an item; zero before the
	// first.
	LastSeen time.Time
	// Opened is when the API server last accepted a watch; zero before the first.
	Opened time.Time
	// Bookmarks is set once the API server has sent a bookmark in a watch: then a healthy watch is
	// never silent for long.
	Bookmarks bool
	// LastError is the failure that is being recovered from; "" when the last request succeeded.
	LastError string
	// NotFound: the failure is a 404, the API server does not serve the resource.
	NotFound bool
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

// Quiet is how long the API server has sent nothing: no event, bookmark, or item of a list; where
// it sends no bookmarks, a watch that it accepted counts too. Zero before the first.
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
		s.LastSeen, s.LastError, s.NotFound = now, "", false
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

// Store takes what the reflector reads, in order, from one goroutine. Every method blocks while
// there is no room and returns ctx's error when ctx ends. Any other error ends Run.
type Store interface {
	Add(ctx context.Context, obj *resource.Object) error
	Update(ctx context.Context, obj *resource.Object) error
	// Delete hands on the last state of an object, with the deletion's version. Within a list, the
	// object came earlier in the list or the watch before it; the list is as of a later version.
	Delete(ctx context.Context, obj *resource.Object) error
	// Bookmark: everything up to v was handed on.
	Bookmark(ctx context.Context, v resource.Version) error
	// BeginReplace: everything known will be replaced by Replace calls. A BeginReplace without an
	// EndReplace before it is abandoned: its items may be incomplete. Of a RelistSelection no
	// EndReplace follows. Of one that is Partial only what is known of its namespace is replaced.
	BeginReplace(ctx context.Context, why resource.Relist) error
	// Replace hands on one item of the list. Within one list an object may come twice; the later
	// one counts.
	Replace(ctx context.Context, obj *resource.Object) error
	// EndReplace: the list was complete, as of v. What is known and was not listed is gone.
	EndReplace(ctx context.Context, v resource.Version) error
	// Unselected hands on what Config.Matches does not match, in lists too; gone: it is deleted. So
	// it does, with nothing but the identity, an object whose last state can't be understood, when
	// the object is deleted, and when the server's history went back.
	Unselected(ctx context.Context, obj *resource.Object, gone bool) error
	// Progress: everything up to v was handed on, while only unwanted objects came. It is called
	// about each second.
	Progress(ctx context.Context, v resource.Version) error
	// Quarantine hands on what could not be understood, before it is reconciled by a list, or
	// skipped by one; the same bytes once, however often they come.
	Quarantine(ctx context.Context, u *resource.Unreadable) error
	// Skip hands on the identity of an item of a list that can't be understood and that the list
	// continues behind. An object of that key is not gone then. Without a key it may be any object,
	// and nothing is taken for gone at this list's end.
	Skip(ctx context.Context, of resource.Identity) error
	// Flush: the reflector is about to wait. It does not block.
	Flush()
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
