package informer

import (
	"errors"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

// Delivery finds up to which version all sinks of an informer have acknowledged everything. The
// watermark does not show that: it also passes changes that lie on this replica's disk, which no
// other replica can read. While some lie there, each watermark is kept with the end of the log at
// that time, and counts when every listener is past that position.
//
// With a namespaceSelector, versions of objects do not show whether the leader has sent them: of a
// namespace that enters the selection it sends objects of any age, and it may not know of that yet.
// So a Delivery also finds up to which version of the Namespaces the selection was applied, and its
// changes acknowledged.
//
// Where a sink is unavailable, the others continue: so a Delivery also finds how far each of them
// is. The newest version of a quiet resource is not complete until a later one or a bookmark comes.
// So a Delivery also names the objects of that version, once everything is acknowledged.
//
// All are samples, so no change carries them. The price: progress is as fine as the leader samples
// it, once a second. A Delivery is owned by one goroutine, and outlives the informer of its unit.
type Delivery struct {
	id            uint64 // of the informer that the samples are of
	scope         string
	at            resource.Version
	epoch         int
	samples       []sample
	ends          []sample // of the log; for the sinks that are further than all
	further       map[string]resource.Version
	newestVersion *standby.NewestVersion // the last one that at has not passed; nil for none
	hasAll        bool                   // at and newestVersion are all that is in the log
	newest        resource.Version       // that the log has had in this epoch, over all its lives

	selection resource.Version        // of the Namespaces, that is acknowledged
	selecting sample                  // that is pending; no version for none
	applied   *reflector.NamespaceSet // a selection that the informer's state has applied
}

// sample says that everything up to a version is in the log before a position.
type sample = changelog.VersionReached

// maxSamples bounds the samples while a sink is unavailable for long; with more, every other one is
// dropped.
const maxSamples = 512

// NewDelivery begins at the progress of the leader before.
func (r *Replica) NewDelivery(from *standby.Unit) *Delivery {
	return &Delivery{
		id: r.informer.id, scope: r.informer.cfg.ReplicaScope(),
		at: from.Delivered, further: from.Further, newestVersion: from.Front, epoch: from.Epoch,
		selection: from.Selection,
	}
}

// Continues reports whether the Delivery is of this informer or an earlier one with the same scope.
// Then it continues with this one.
func (d *Delivery) Continues(i *Informer) bool {
	if d.scope != i.cfg.ReplicaScope() {
		return false
	}
	if d.id != i.id { // positions in another log
		d.id, d.samples, d.ends, d.selecting, d.applied = i.id, nil, nil, sample{}, nil
	}
	return true
}

// Progress returns the current progress.
func (d *Delivery) Progress(i *Informer) (standby.Unit, error) {
	d.hasAll = false // until the log was looked at
	epoch, err := i.indexer.Meta().Epoch()
	if err != nil {
		return standby.Unit{}, err
	}
	// The versions are read before the positions: what they cover is in the log by then.
	selection, err := d.appliedSelection(i)
	if err != nil {
		return standby.Unit{}, err
	}
	log := i.stages.Log().Delivered()
	if again, err := i.indexer.Meta().Epoch(); err != nil || again != epoch {
		return d.unit(i), err // the server's history went back at this moment
	}
	if epoch.Number != d.epoch { // versions of the epoch before can't be compared
		*d = Delivery{id: d.id, scope: d.scope, epoch: epoch.Number, selection: d.selection}
	}
	d.addSelection(selection, log.Low, log.Settled.Next)
	if !epoch.Open { // else the versions are of the epoch before
		d.samples = addSample(d.samples, log.Settled, d.at)
		d.samples, d.at = passed(d.samples, log.Low, d.at)
		d.addFurther(i.Replica.sinkKeys, &log)
		d.addNewestVersion(&log)
	}
	return d.unit(i), nil
}

// addNewestVersion finds which objects of the version after d.at are delivered. The last
// NewestVersion stays until d.at has passed it: after a reload the log may not know of that version
// yet.
func (d *Delivery) addNewestVersion(log *changelog.Delivered) {
	if d.newest == "" || log.Newest.Newer(d.newest) {
		d.newest = log.Newest
	}
	d.hasAll = log.NewestVersion != nil
	switch {
	case d.hasAll:
		d.newestVersion = (*standby.NewestVersion)(log.NewestVersion)
	case d.newestVersion != nil && d.newestVersion.Version.NotNewer(d.at):
		d.newestVersion = nil
	}
}

// Frontier is what the progress has to reach before it covers everything that sinks have
// acknowledged up to a moment.
type Frontier struct {
	epoch             int
	newest, selection resource.Version
}

// Frontier returns that of the last Progress, without items of a list that has not ended.
func (d *Delivery) Frontier(i *Informer) Frontier {
	f := Frontier{epoch: d.epoch, newest: d.newest}
	if last := i.selection(); last != nil {
		f.selection = last()
	}
	return f
}

// Covers reports whether the last Progress has reached a frontier, for one sink.
func (d *Delivery) Covers(f *Frontier, sinkKey string) bool {
	at := d.at
	if further := d.further[sinkKey]; further.Newer(at) {
		at = further
	}
	switch {
	case f.epoch != d.epoch:
		return d.epoch > f.epoch && at != ""
	case f.selection != "" && !f.selection.NotNewer(d.selection):
		return false
	case f.newest == "" || d.hasAll && f.newest.NotNewer(d.newestVersion.Version):
		return true
	default:
		return f.newest.NotNewer(at)
	}
}

func (d *Delivery) unit(i *Informer) standby.Unit {
	return standby.Unit{
		Scope: i.cfg.ReplicaScope(), Delivered: d.at, Further: d.further, Front: d.newestVersion,
		Epoch: d.epoch, Selection: d.selection, Selectors: i.indexer.Meta().Selection(),
	}
}

// addFurther finds how far each sink is.
func (d *Delivery) addFurther(sinkKeys []string, log *changelog.Delivered) {
	d.ends = addSample(d.ends, log.End, d.at)
	var further map[string]resource.Version
	for n, key := range sinkKeys {
		at := d.further[key]
		if log.Lows[n] > log.Lowest {
			_, at = passed(d.ends, log.Lows[n], at)
		}
		if at == "" || d.at != "" && !at.Newer(d.at) {
			continue
		}
		if further == nil {
			further = map[string]resource.Version{}
		}
		further[key] = at
	}
	d.further = further
	d.ends, _ = passed(d.ends, log.Lowest, d.at)
}

// addSample adds a sample, unless its version is known already.
func addSample(samples []sample, s sample, known resource.Version) []sample {
	n := len(samples)
	if s.Version == "" || s.Version == known || n > 0 && samples[n-1].Version == s.Version {
		return samples
	}
	samples = append(samples, s)
	if len(samples) > maxSamples {
		for i := range maxSamples / 2 {
			samples[i] = samples[2*i+1]
		}
		samples = samples[:maxSamples/2]
	}
	return samples
}

// passed removes the samples before a position, and returns the version of the last of them; at
// where there is none.
func passed(
	samples []sample, low changelog.Position, at resource.Version,
) ([]sample, resource.Version) {
	n := 0
	for n < len(samples) && samples[n].Next <= low {
		at = samples[n].Version
		n++
	}
	return samples[n:], at
}

// addSelection adds a selection that was applied: it is acknowledged when everything before the
// position is.
func (d *Delivery) addSelection(version resource.Version, low, next changelog.Position) {
	if d.selecting.Version != "" && d.selecting.Next <= low {
		d.selection, d.selecting = d.selecting.Version, sample{}
	}
	if version == "" || d.selecting.Version != "" {
		return
	}
	if d.selecting = (sample{Version: version, Next: next}); next <= low {
		d.selection, d.selecting = version, sample{}
	}
}

// appliedSelection returns the version of the Namespaces whose selection is applied: its changes
// are in the log, or settled. "" while it is not.
func (d *Delivery) appliedSelection(i *Informer) (resource.Version, error) {
	if i.selected == nil {
		return "", nil
	}
	set, seen := i.selected.AsOf()
	if set == nil || set == d.applied {
		return seen, nil
	}
	saved, err := i.indexer.Meta().Namespaces()
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

// selection returns a function for the version of the last change of the selection; nil where there
// are no other replicas to compare it with.
func (i *Informer) selection() func() resource.Version {
	if i.cfg.NamespaceSelector == "" || i.env.Replicas == nil {
		return nil
	}
	return func() resource.Version { return i.selected.LastChange() } // there is none yet
}

// Replica is an informer among those of the same unit in other replicas.
type Replica struct {
	informer *Informer
	// sinkKeys are the Keys of the sinks, by listener.
	sinkKeys []string
}

// Follow gives the listeners what the leader has delivered to their sinks. ended: the leader has
// ended the unit, after everything was delivered.
func (r *Replica) Follow(delivered func(sinkKey string) standby.Unit, ended bool) {
	for n, key := range r.sinkKeys {
		r.informer.stages.Follow(n, delivered(key), ended)
	}
}

// Lead makes the listeners send everything that the leader before has not delivered.
func (r *Replica) Lead() { r.informer.stages.Lead() }

// Held returns how many entries at most, over all sinks, the leader has not delivered.
func (r *Replica) Held() (n int) {
	for _, l := range r.informer.stages.Status().Listeners {
		n += l.Held
	}
	return n
}

// SinkKeys returns the keys of the informer's sinks, sorted, never nil.
func (r *Replica) SinkKeys() []string {
	keys := append([]string{}, r.sinkKeys...)
	slices.Sort(keys)
	return keys
}

// Adopt takes over from the leader's progress how often the server's history went back and how
// often the selection changed, when this replica knows nothing itself. Call it before Begin.
func (r *Replica) Adopt(progress *standby.Unit) error {
	return errors.Join(r.adoptEpoch(progress.Epoch),
		r.informer.indexer.Meta().AdoptSelection(progress.Selectors))
}

func (r *Replica) adoptEpoch(number int) error {
	empty, err := r.informer.indexer.Empty()
	if err != nil || !empty || r.informer.stages.Log().Status().Watermark != "" {
		return err
	}
	own, err := r.informer.indexer.Meta().Epoch()
	if err != nil || own.Open || own.Number >= number {
		return err
	}
	return r.informer.indexer.Meta().AdoptEpoch(number)
}

// SeenSince returns the version since which the informer has seen everything, in an epoch of the
// server's history. ok is false during a list, and before the first.
func (r *Replica) SeenSince() (from resource.Version, epoch int, ok bool) {
	return r.informer.stages.SeenSince()
}

// Began returns when the informer's state was opened.
func (r *Replica) Began() time.Time { return r.informer.state.at }

// Selectors returns how often another selector of namespaces was configured.
func (r *Replica) Selectors() int { return r.informer.indexer.Meta().Selection() }
