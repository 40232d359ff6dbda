package informer

import (
	"errors"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/resource"
)

// Replica is a pipeline among those of the same name in other replicas.
type Replica struct {
	p *Informer
	// sinkKeys are the Keys of the sinks, by listener.
	sinkKeys []string
}

// Follow gives the listeners what the leader has delivered to their sinks. ended: the leader has
// ended the pipeline, after everything was delivered.
func (r *Replica) Follow(delivered func(sinkKey string) standby.Unit, ended bool) {
	for n, key := range r.sinkKeys {
		r.p.stages.Follow(n, delivered(key), ended)
	}
}

// Lead has the listeners send what the leader before has not delivered.
func (r *Replica) Lead() { r.p.stages.Lead() }

// Held is how many entries at most are pending, over all sinks, until the leader has delivered
// them.
func (r *Replica) Held() (n int) {
	for _, l := range r.p.stages.Status().Listeners {
		n += l.Held
	}
	return n
}

// SinkKeys are the keys of the sinks that the pipeline sends to, sorted, never nil.
func (r *Replica) SinkKeys() []string {
	keys := append([]string{}, r.sinkKeys...)
	slices.Sort(keys)
	return keys
}

// Adopt takes over from the leader's progress how often the server's history went back and how
// often the selection changed, when the pipeline knows nothing itself. Call it before Begin.
func (r *Replica) Adopt(progress *standby.Unit) error {
	return errors.Join(r.adoptEpoch(progress.Epoch),
		r.p.indexer.Meta().AdoptSelection(progress.Selectors))
}

func (r *Replica) adoptEpoch(number int) error {
	empty, err := r.p.indexer.Empty()
	if err != nil || !empty || r.p.stages.Log().Status().Watermark != "" {
		return err
	}
	own, err := r.p.indexer.Meta().Epoch()
	if err != nil || own.Open || own.Number >= number {
		return err
	}
	return r.p.indexer.Meta().AdoptEpoch(number)
}

// History is the version since which the pipeline has seen everything, in an epoch of the server's
// history. ok is false while a list is under way, and before the first.
func (r *Replica) History() (from resource.Version, epoch int, ok bool) {
	return r.p.stages.History()
}

// Began is when the pipeline's state was opened.
func (r *Replica) Began() time.Time { return r.p.opened.at }

// Selectors is how often another selector of namespaces was configured.
func (r *Replica) Selectors() int { return r.p.indexer.Meta().Selection() }
