package bridge

import (
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
	// PausedBy says who has paused it, and since when; left out when it is not paused.
	PausedBy *informer.Pause `json:"pausedBy,omitempty"`
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
	s := Status{
		Cluster: b.cfg.Cluster, Standby: b.replica.status(),
		State: StateStatus{Dir: b.cfg.DB.Database().Dir(), Bytes: b.cfg.DB.Database().DiskBytes()},
	}
	if err := b.stateErr(); err != nil {
		s.State.CommitError = err.Error()
	}
	for _, u := range b.pipelines.all() {
		status := u.Status()
		status.PausedBy = b.pauses.of(kindInformer, u.Config().Informer)
		status.Objects = u.Objects.Count()
		s.Informers = append(s.Informers, status)
	}
	for _, u := range b.pipelines.retired() {
		s.Informers = append(s.Informers, u.status)
	}
	for _, out := range b.sinks.all() {
		s.Sinks = append(s.Sinks, SinkStatus{
			Name: out.name, PausedBy: b.pauses.of(kindSink, out.name),
			Status: out.publisher.Status(),
		})
	}
	return s
}
