package bridge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/publisher"
)

// Status is everything that /status shows.
type Status struct {
	Cluster   string       `json:"cluster"`
	Informers []UnitStatus `json:"informers"`
	Sinks     []SinkStatus `json:"sinks"`
	State     StateStatus  `json:"state"`
}

// UnitStatus is one resource of an informer.
type UnitStatus struct {
	Informer  string `json:"informer"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Phase     string `json:"phase"`
	Synced    bool   `json:"synced"`
	// Version last read, and the watermark, from which a restart resumes.
	Version   string    `json:"version"`
	Watermark string    `json:"watermark"`
	LastSeen  time.Time `json:"lastSeen,omitzero"`
	LastError string    `json:"lastError,omitempty"`
	Relists   int       `json:"relists"`
	Listed    int       `json:"listed"`
	// What waits between the API server and the sinks.
	QueuedObjects int            `json:"queuedObjects"`
	QueuedBytes   int            `json:"queuedBytes"`
	LogChanges    int            `json:"logChanges"`
	LogBytes      int            `json:"logBytes"`
	SpoolBytes    int64          `json:"spoolBytes"`
	InFlight      map[string]int `json:"inFlight"`
	// Dropped counts, by sink, events that were dropped from a full disk since the start.
	Dropped   map[string]int `json:"dropped"`
	Unsettled int            `json:"unsettled"`
}

// SinkStatus is one sink.
type SinkStatus struct {
	Name string `json:"name"`
	publisher.Status
}

// StateStatus is the state database.
type StateStatus struct {
	Dir         string `json:"dir,omitempty"`
	Bytes       uint64 `json:"bytes"`
	CommitError string `json:"commitError,omitempty"`
}

// Status says where everything stands.
func (b *Bridge) Status() Status {
	s := Status{Cluster: b.cfg.Cluster, State: StateStatus{Dir: b.cfg.DB.Dir(), Bytes: b.cfg.DB.DiskBytes()}}
	if err := b.committer.Err(); err != nil {
		s.State.CommitError = err.Error()
	}
	for _, u := range b.units {
		s.Informers = append(s.Informers, u.status())
	}
	for _, sc := range b.cfg.Sinks {
		s.Sinks = append(s.Sinks, SinkStatus{Name: sc.Name, Status: b.publishers[sc.Name].Status()})
	}
	return s
}

func (u *unit) status() UnitStatus {
	r, c, f, i := u.reflector.Status(), u.tracker.Status(), u.fifo.Stats(), u.informer.Status()
	s := UnitStatus{
		Informer: u.cfg.Informer, Resource: u.cfg.Type.String(), Namespace: u.cfg.Namespace,
		Phase: string(r.Phase), Synced: r.Synced && u.informer.HasSynced(), Version: string(r.Version), Watermark: string(c.Watermark),
		LastSeen: r.LastSeen, LastError: r.LastError, Relists: r.Relists, Listed: r.Items,
		QueuedObjects: f.Entries, QueuedBytes: f.Bytes, LogChanges: i.LogChanges, LogBytes: i.LogBytes, SpoolBytes: i.DiskBytes,
		Unsettled: c.Unsettled, InFlight: map[string]int{}, Dropped: map[string]int{},
	}
	for _, l := range i.Listeners {
		s.InFlight[l.Sink], s.Dropped[l.Sink] = l.InFlight, l.Dropped
	}
	return s
}

// Reason is why the bridge is not ready.
type Reason struct {
	// Component is "informer <name>/<resource>", "sink <name>" or "state".
	Component string `json:"component"`
	Message   string `json:"message"`
}

func (r Reason) String() string { return r.Component + ": " + r.Message }

// Ready gives the reasons why the bridge is not ready; none when it is: every informer in step with the API server, every sink
// connected, and the last commit written.
func (b *Bridge) Ready() []Reason {
	var reasons []Reason
	for _, u := range b.units {
		if s := u.status(); !s.Synced || s.LastError != "" {
			message := cmp.Or(s.LastError, fmt.Sprintf("not in step yet (%s, %d objects listed)", s.Phase, s.Listed))
			reasons = append(reasons, Reason{Component: "informer " + u.name, Message: message})
		}
	}
	for name, p := range b.publishers {
		if s := p.Status(); !s.Connected {
			reasons = append(reasons, Reason{Component: "sink " + name, Message: cmp.Or(s.LastError, "not connected yet")})
		}
	}
	if err := b.committer.Err(); err != nil {
		reasons = append(reasons, Reason{Component: "state", Message: err.Error()})
	}
	slices.SortFunc(reasons, func(a, b Reason) int { return strings.Compare(a.Component, b.Component) })
	return reasons
}
