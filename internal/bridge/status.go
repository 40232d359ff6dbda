package bridge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
)

// Status is everything that /status shows.
type Status struct {
	Cluster   string            `json:"cluster"`
	Informers []informer.Status `json:"informers"`
	Sinks     []SinkStatus      `json:"sinks"`
	State     StateStatus       `json:"state"`
	// Standby is the bridge's part among its replicas; left out where there are no others.
	Standby *ReplicaStatus `json:"standby,omitempty"`
}

// SinkStatus is one sink.
type SinkStatus struct {
	Name string `json:"name"`
	// PausedBy is who has paused the sink, and since when; left out when it is not paused.
	PausedBy *informer.Pause `json:"pausedBy,omitempty"`
	publisher.Status
	// LagSeconds is how long ago the oldest change was observed, of any informer, that the sink has
	// not acknowledged. PendingChanges is how many such changes there are at most.
	LagSeconds     float64 `json:"lagSeconds"`
	PendingChanges int     `json:"pendingChanges"`
	// State is what the sink is doing, in a word; see findState.
	State string `json:"state"`
}

// findState names in a word what a sink is doing: connected, unavailable, blocked, paused, or "not
// open".
func (s *SinkStatus) findState() string {
	switch {
	case !s.Opened:
		return "not open"
	case !s.Connected:
		return "unavailable"
	case s.Blocked != "":
		return "blocked"
	case s.Paused:
		return "paused"
	}
	return "connected"
}

// addLag sums up what informers are behind with a sink.
func (s *SinkStatus) addLag(informers []informer.Status) {
	s.LagSeconds = s.OldestSeconds
	for i := range informers {
		s.LagSeconds = max(s.LagSeconds, informers[i].OldestSeconds[s.Name])
		s.PendingChanges += informers[i].PendingChanges[s.Name]
	}
}

// StateStatus is the state database.
type StateStatus struct {
	Dir         string `json:"dir,omitempty"`
	Bytes       uint64 `json:"bytes"`
	CommitError string `json:"commitError,omitempty"`
}

// Status returns the status of everything.
func (b *Bridge) Status() Status {
	s := Status{
		Cluster: b.cfg.Cluster, Standby: b.replica.status(),
		State: StateStatus{Dir: b.cfg.DB.Database().Dir(), Bytes: b.cfg.DB.Database().DiskBytes()},
	}
	if err := b.stateErr(); err != nil {
		s.State.CommitError = err.Error()
	}
	for _, u := range b.informers.all() {
		status := u.Status()
		status.PausedBy = b.pauses.find(kindInformer, u.Config().Informer)
		status.Objects = u.Objects.Count()
		s.Informers = append(s.Informers, status)
	}
	for _, u := range b.informers.removed() {
		s.Informers = append(s.Informers, u.status)
	}
	for _, out := range b.sinks.all() {
		sink := SinkStatus{
			Name: out.name, PausedBy: b.pauses.find(kindSink, out.name),
			Status: out.publisher.Status(),
		}
		sink.addLag(s.Informers)
		sink.State = sink.findState()
		s.Sinks = append(s.Sinks, sink)
	}
	return s
}

// Ready returns the reasons why the bridge is not ready. It is ready when every informer is in sync
// with the API server, neither stalled nor behind by more than its limit, every sink is connected
// and not blocked by an event, and the last commit was written.
func (b *Bridge) Ready() []Reason {
	var reasons []Reason
	note := func(name, message string) {
		if message != "" {
			reasons = append(reasons, Reason{Component: "informer " + name, Message: message})
		}
	}
	for _, u := range b.informers.all() {
		if p := b.pauses.find(kindInformer, u.Config().Informer); p != nil {
			note(u.Name(), pausedReason(p, kindInformer, u.Config().Informer))
			continue
		}
		note(u.Name(), u.NotReady(b.replica.follows()))
	}
	for _, u := range b.informers.removed() {
		note(u.name, u.notReady)
	}
	if why := b.namespacesNotReady(); why != "" {
		reasons = append(reasons, Reason{
			Component: "namespaces",
			Message:   "it is not known which are selected: " + why,
		})
	}
	if b.replica.follows() {
		reasons = append(reasons, b.replica.notReady()...)
	}
	for _, out := range b.sinks.all() {
		if p := b.pauses.find(kindSink, out.name); p != nil {
			reasons = append(reasons, Reason{
				Component: "sink " + out.name,
				Message:   pausedReason(p, kindSink, out.name),
			})
		} else if why := out.notReady(); why != "" && !b.replica.follows() {
			reasons = append(reasons, Reason{Component: "sink " + out.name, Message: why})
		}
	}
	if err := b.stateErr(); err != nil {
		reasons = append(reasons, Reason{Component: "state", Message: err.Error()})
	}
	slices.SortFunc(reasons, func(a, b Reason) int { return strings.Compare(a.Component, b.Component) })
	return reasons
}

// namespacesNotReady returns why the selected namespaces are unknown; "" when they are known, or no
// unit selects any: one that did may have ended.
func (b *Bridge) namespacesNotReady() string {
	selects := func(u *informer.Informer) bool { return u.Config().NamespaceSelector != "" }
	if !slices.ContainsFunc(b.informers.all(), selects) {
		return ""
	}
	return b.namespaces.NotReady()
}

// notReady returns why the sink is not ready; "" when it is.
func (o *sinkRunner) notReady() string {
	switch s := o.publisher.Status(); {
	case !s.Connected:
		return cmp.Or(s.LastError, "not connected yet")
	case s.Blocked != "":
		return s.Blocked
	default:
		return ""
	}
}

// stateErr returns the error of the state directory: of the disk, or else of the last commit.
func (b *Bridge) stateErr() error { return cmp.Or(b.cfg.DB.Database().Health(), b.committer.Err()) }
