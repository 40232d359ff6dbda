package bridge

import (
	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/standby"
)

// delivery finds up to which version everything of a unit is with its brokers. The watermark does not tell: it also passes what lies on this
// replica's disk, which no other replica can read. So while something lies there, each watermark is noted with the place that the log had
// reached by then, and counts when every listener is past that place. It is owned by the goroutine that tells the progress.
type delivery struct {
	life    uint64 // of the unit that samples are of
	scope   string
	at      resource.Version
	epoch   int
	samples []sample

	selection resource.Version        // of the Namespaces, that is delivered
	selecting sample                  // that is being delivered; no version for none
	workedIn  *reflector.NamespaceSet // a selection of which the unit's state says that it is worked in
}

// sample says that everything up to a version is in the log before a place.
type sample struct {
	version resource.Version
	next    changelog.Position
}

// maxSamples bounds what is remembered while a sink is away for long; with more, every other one is forgotten.
const maxSamples = 512

// look gives the progress of now.
func (d *delivery) look(u *unit) (standby.Unit, error) {
	epoch, err := u.indexer.Epoch()
	if err != nil {
		return standby.Unit{}, err
	}
	selection, err := d.lookSelection(u) // before the places too
	if err != nil {
		return standby.Unit{}, err
	}
	watermark := u.informer.Log().Status().Watermark // before the places: what it has passed is in the log by then
	low, next := u.informer.Log().Delivered()
	if again, err := u.indexer.Epoch(); err != nil || again != epoch {
		return d.unit(u), err // the server's history went back at this moment
	}
	if epoch.Number != d.epoch {
		*d = delivery{life: d.life, scope: d.scope, epoch: epoch.Number, selection: d.selection} // versions of before can't be compared
	}
	d.noteSelection(selection, low, next)
	if !epoch.Open { // else the watermark is of the epoch before
		d.note(watermark, low, next)
	}
	return d.unit(u), nil
}

func (d *delivery) unit(u *unit) standby.Unit {
	return standby.Unit{
		Scope: u.cfg.toldScope(), Delivered: d.at, Epoch: d.epoch, Selection: d.selection, Selectors: u.indexer.Selection(),
	}
}

func (d *delivery) note(watermark resource.Version, low, next changelog.Position) {
	if n := len(d.samples); watermark != "" && watermark != d.at && (n == 0 || d.samples[n-1].version != watermark) {
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
