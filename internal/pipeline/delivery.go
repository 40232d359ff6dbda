package pipeline

import (
	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/standby"
)

// Delivery finds up to which version all sinks of a pipeline have acknowledged everything. The
// watermark does not say that: it also passes what lies on this replica's disk, which no other
// replica can read. While something lies there, each watermark is kept with the end of the log at
// that time, and counts when every listener is past that position.
//
// With a namespaceSelector, versions of objects do not say whether the leader has sent them: of a
// namespace that enters the selection it sends objects of any age, and it may not know of that yet.
// So a Delivery also finds up to which version of the Namespaces the selection was applied, and
// what came of it was acknowledged.
//
// Both are samples, so no change carries them. The price: progress is as fine as the leader looks,
// once a second.
//
// It is owned by one goroutine, and outlives the pipeline of its name.
type Delivery struct {
	id      uint64 // of the pipeline that samples are of
	scope   string
	at      resource.Version
	epoch   int
	samples []sample

	selection resource.Version        // of the Namespaces, that is acknowledged
	selecting sample                  // that is pending; no version for none
	applied   *reflector.NamespaceSet // a selection that the pipeline's state has applied
}

// sample says that everything up to a version is in the log before a position.
type sample struct {
	version resource.Version
	next    changelog.Position
}

// maxSamples bounds what is kept while a sink is unavailable for long; with more, every other one
// is forgotten.
const maxSamples = 512

// NewDelivery begins where the leader before stood.
func (r *Replica) NewDelivery(from *standby.Unit) *Delivery {
	return &Delivery{
		id: r.p.id, scope: r.p.cfg.ReplicaScope(),
		at: from.Delivered, epoch: from.Epoch, selection: from.Selection,
	}
}

// Continues reports whether the Delivery is of this pipeline or one before it with the same scope.
// Then it continues with this one.
func (d *Delivery) Continues(p *Pipeline) bool {
	if d.scope != p.cfg.ReplicaScope() {
		return false
	}
	if d.id != p.id { // positions in the log of the pipeline before say nothing about this one's
		d.id, d.samples, d.selecting, d.applied = p.id, nil, sample{}, nil
	}
	return true
}

// Progress returns the progress of now.
func (d *Delivery) Progress(p *Pipeline) (standby.Unit, error) {
	epoch, err := p.indexer.Meta().Epoch()
	if err != nil {
		return standby.Unit{}, err
	}
	// The versions are read before the positions: what they cover is in the log by then.
	selection, err := d.appliedSelection(p)
	if err != nil {
		return standby.Unit{}, err
	}
	watermark := p.informer.Log().Status().Watermark
	low, next := p.informer.Log().Delivered()
	if again, err := p.indexer.Meta().Epoch(); err != nil || again != epoch {
		return d.unit(p), err // the server's history went back at this moment
	}
	if epoch.Number != d.epoch { // versions of the epoch before can't be compared
		*d = Delivery{id: d.id, scope: d.scope, epoch: epoch.Number, selection: d.selection}
	}
	d.addSelection(selection, low, next)
	if !epoch.Open { // else the watermark is of the epoch before
		d.add(watermark, low, next)
	}
	return d.unit(p), nil
}

func (d *Delivery) unit(p *Pipeline) standby.Unit {
	return standby.Unit{
		Scope: p.cfg.ReplicaScope(), Delivered: d.at, Epoch: d.epoch,
		Selection: d.selection, Selectors: p.indexer.Meta().Selection(),
	}
}

func (d *Delivery) add(watermark resource.Version, low, next changelog.Position) {
	n := len(d.samples)
	if watermark != "" && watermark != d.at && (n == 0 || d.samples[n-1].version != watermark) {
		d.samples = append(d.samples, sample{watermark, next})
	}
	for len(d.samples) > 0 && d.samples[0].next <= low {
		d.at = d.samples[0].version
		d.samples = d.samples[1:]
	}
	if len(d.samples) > maxSamples {
		for i := range maxSamples / 2 {
			d.samples[i] = d.samples[2*i+1]
		}
		d.samples = d.samples[:maxSamples/2]
	}
}

// addSelection adds a selection that was applied: it is acknowledged when everything before the
// position is.
func (d *Delivery) addSelection(version resource.Version, low, next changelog.Position) {
	if d.selecting.version != "" && d.selecting.next <= low {
		d.selection, d.selecting = d.selecting.version, sample{}
	}
	if version == "" || d.selecting.version != "" {
		return
	}
	if d.selecting = (sample{version, next}); next <= low {
		d.selection, d.selecting = version, sample{}
	}
}

// appliedSelection is the version of the Namespaces whose selection is applied: what came of it is
// in the log, or settled. "" while it is not.
func (d *Delivery) appliedSelection(p *Pipeline) (resource.Version, error) {
	if p.selected == nil {
		return "", nil
	}
	set, seen := p.selected.AsOf()
	if set == nil || set == d.applied {
		return seen, nil
	}
	saved, err := p.indexer.Meta().Namespaces()
	if err != nil {
		return "", err
	}
	for name := range set.Selected {
		if saved[name].State != resource.NamespaceIn {
			return "", nil
		}
	}
	for name, n := range saved {
		if _, selected := set.Selected[name]; !selected && n.State != resource.NamespaceOut {
			return "", nil
		}
	}
	d.applied = set
	return seen, nil
}

// selection returns the version of the last change of what is selected; nil where there are no
// other replicas to compare it with.
func (p *Pipeline) selection() func() resource.Version {
	if p.cfg.NamespaceSelector == "" || p.env.Replicas == nil {
		return nil
	}
	return func() resource.Version { return p.selected.LastChange() } // there is none yet
}
