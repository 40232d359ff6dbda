package config

import (
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
)

// Standby has several bridges of one configuration stand by for each other. All of them watch, each
// with a state directory of its own; the one that has the lease publishes. When it is gone another
// one resumes where it was: out of its own log, without a list.
type Standby struct {
	// Enabled turns it on. Sinks with an embedded server, `state.mode: memory` and informers with
	// another `snapshot` than `initial` can't be combined with it.
	Enabled bool `yaml:"enabled"`
	// Lease is the object that says who publishes, the same for all bridges that stand by for each
	// other. What the leader has delivered is kept in another one beside it, `<name>-progress`.
	// With `shard` each shard has its own two: `<name>-0-of-3` and `<name>-0-of-3-progress`.
	Lease StandbyLease `yaml:"lease"`
	// Identity names this bridge in the lease and in logs. A random part is added, so that no two
	// are the same. Left out: the host's name, which is the pod's.
	Identity string `yaml:"identity"`
	// LeaseDuration is how long the others wait for a leader that is not heard of, in whole
	// seconds. A leader that stops in order hands over at once.
	LeaseDuration time.Duration `yaml:"leaseDuration" default:"15s"`
	// RenewDeadline is how long after its last renewal a leader that can't reach the API server
	// continues to publish. It then stops and exits with code 1. It must be shorter than
	// `leaseDuration`: the time between is for what is on the wire.
	RenewDeadline time.Duration `yaml:"renewDeadline" default:"10s"`
	// RetryPeriod is the time between renewals, and at least that between looks of the others,
	// which wait up to 2.2 times as long.
	RetryPeriod time.Duration `yaml:"retryPeriod" default:"500ms"`
}

// StandbyLease names a Lease of coordination.k8s.io.
type StandbyLease struct {
	// Name of the Lease. Bridges of different configurations in one namespace need different names.
	Name string `yaml:"name" default:"bridge"`
	// Namespace of the Lease. Left out: that of the pod, or of the kubeconfig's context, else
	// `default`.
	Namespace string `yaml:"namespace"`
}

func (s *Standby) validate(ps *settings.Report, c *Config) {
	if s.LeaseDuration < time.Second || s.LeaseDuration%time.Second != 0 {
		ps.Add("standby.leaseDuration", "want whole seconds, at least 1s, got %v", s.LeaseDuration)
	}
	if s.RenewDeadline >= s.LeaseDuration {
		ps.Add("standby.renewDeadline", "must be shorter than leaseDuration (%v), is %v", s.LeaseDuration,
			s.RenewDeadline)
	}
	const jitter = 1.2 // so that a leader tries twice at least, as in client-go's election
	if s.RetryPeriod <= 0 || float64(s.RenewDeadline) <= jitter*float64(s.RetryPeriod) {
		ps.Add("standby.retryPeriod",
			"must be more than 0, and less than renewDeadline (%v) divided by %v, is %v", s.RenewDeadline,
			jitter, s.RetryPeriod)
	}
	if !s.Enabled {
		return
	}
	if s.Lease.Name == "" {
		ps.Add("standby.lease.name", "required")
	}
	if c.State.Mode == "memory" {
		ps.Add("standby.enabled", "needs a state on disk: what the leader has not delivered waits "+
			"there; set state.mode: disk")
	}
	for i := range c.Informers {
		if c.Informers[i].Snapshot != "initial" {
			ps.Add(fmt.Sprintf("informers[%d].snapshot", i),
				"must be initial with standby.enabled: a bridge that stands by has to know what exists, and "+
					"its start is no start of the stream; it is %q", c.Informers[i].Snapshot)
		}
	}
	for i, sink := range c.Sinks {
		if sink.NATS != nil && sink.NATS.Embedded {
			ps.Add(fmt.Sprintf("sinks[%d].nats.embedded", i),
				"can't be combined with standby.enabled: each bridge would publish into a server of its own, "+
					"which goes with it; run a NATS server, and name its url")
		}
	}
}
