package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
)

// ReplicaStatus is the part of a bridge among its replicas.
type ReplicaStatus struct {
	// Role is "leader" or "standby".
	Role     string `json:"role"`
	Identity string `json:"identity"`
	// Leader is who was last seen to lead.
	Leader string `json:"leader,omitempty"`
	// InSync says, of a standby, that it could take over without a gap.
	InSync bool `json:"inSync"`
	// Behind says, of a standby, of which resources that is not so, and why.
	Behind []Reason `json:"behind,omitempty"`
	// Held is how many changes at most are pending until the leader has reported that they are with
	// the brokers.
	Held int `json:"held"`
	// ProgressAgeSeconds is how long ago the leader's progress was last read.
	ProgressAgeSeconds float64 `json:"progressAgeSeconds,omitempty"`
}

func (r *replica) status() *ReplicaStatus {
	if r == nil {
		return nil
	}
	s := &ReplicaStatus{
		Role: "leader", Identity: r.cfg.Lease.Identity(), Leader: r.cfg.Lease.Leader(),
		Held: r.held(),
	}
	if r.follows() {
		s.Role, s.Behind = "standby", r.notInSync()
		s.InSync = len(s.Behind) == 0
		r.mu.Lock()
		s.ProgressAgeSeconds = age(r.readAt).Seconds()
		r.mu.Unlock()
	}
	return s
}

func (r *replica) held() (n int) {
	for _, u := range r.pipelines.all() {
		n += u.Replica.Held()
	}
	return n
}

// replicaMetrics are of the bridge among its replicas.
type replicaMetrics struct {
	takeovers *metric.Counter
	short     *metric.Gauge
}

func newReplicaMetrics(reg prometheus.Registerer, r *replica) *replicaMetrics {
	m := metric.With(reg)
	// Each shard has a lease, and a leader of its own.
	metric.WithLabel(reg, "lease", r.cfg.Lease.Name()).FlagFunc("bridge_standby_leader",
		"1 while this replica publishes, 0 while it follows.",
		func() bool { return !r.follows() })
	m.GaugeFunc("bridge_standby_behind_resources",
		"Resources that this standby could not take over without a gap.",
		func() float64 {
			if !r.follows() {
				return 0
			}
			return float64(len(r.notInSync()))
		})
	m.GaugeFunc("bridge_standby_redaction_key_differs",
		"1 while this standby has another redaction key than the leader.",
		func() float64 {
			if r.otherKey() == "" {
				return 0
			}
			return 1
		})
	m.GaugeFunc("bridge_standby_doubtful_resources",
		"Resources whose progress on the Lease is too far ahead of this replica's own "+
			"watch to be believed.",
		func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(len(r.doubtful))
		})
	m.GaugeFunc("bridge_standby_held_events",
		"Changes, at most, that are pending until the leader has reported that they "+
			"are with the brokers.",
		func() float64 { return float64(r.held()) })
	m.GaugeFunc("bridge_standby_progress_age_seconds",
		"How long ago this standby has last read the leader's progress.",
		func() float64 {
			if !r.follows() {
				return 0
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return age(r.readAt).Seconds()
		})
	return &replicaMetrics{
		takeovers: m.Counter("bridge_standby_takeovers_total",
			"Times this process has begun to publish as the leader."),
		short: m.Gauge("bridge_standby_progress_short",
			"1 while the progress that this leader reports is too large for its object, and leaves "+
				"positions of sinks out."),
	}
}
