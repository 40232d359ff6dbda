package reflector

import (
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// Phase is what the reflector is doing.
type Phase string

// The phases.
const (
	Stopped    Phase = "stopped" // not running yet, or no more
	Probing    Phase = "probing" // asking for the server's version
	Listing    Phase = "listing"
	Watching   Phase = "watching"
	BackingOff Phase = "backing-off" // waiting after a failure
)

// Status is what the reflector is doing at one moment.
type Status struct {
	Phase Phase
	// Version is the last one that the Store took: of an event, a bookmark or a complete list. "" before the first.
	Version resource.Version
	// LastSeen is when the API server last sent an event, a bookmark or an item; zero before the first.
	LastSeen time.Time
	// LastError is the failure that is being recovered from; "" when the last request went well.
	LastError string
	// Relists counts how often everything known had to be replaced by a list, the first snapshot included.
	Relists int
	// Items is how many objects the current list, or else the last one, has handed on.
	Items int
	// Synced is set once the Store holds the whole state: with the first complete list, or when a watch was resumed.
	// It stays set during later lists.
	Synced bool
}

// status is the Status that Run keeps and others read.
type status struct {
	mu sync.Mutex // guards now; held for a few assignments only
	s  Status
}

func (s *status) get() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.s
}

func (s *status) set(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.s)
}

func (s *status) phase(p Phase) { s.set(func(s *Status) { s.Phase = p }) }
