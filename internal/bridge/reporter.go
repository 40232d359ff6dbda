package bridge

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/kube/standby"
	"github.com/kubebridge/bridge/internal/ratelimit"
)

// reporter writes this replica's progress while it leads. It is owned by one goroutine at a time.
type reporter struct {
	replica    *replica
	deliveries map[string]*informer.Delivery // by unit
	positions  map[string]*pastPositions     // by key of the sink
	last       standby.Progress
	short      bool // the last one left positions of sinks out
}

func newReporter(r *replica) *reporter {
	return &reporter{
		replica: r, deliveries: map[string]*informer.Delivery{},
		positions: map[string]*pastPositions{},
	}
}

// run reports the progress until ctx ends. standby.ErrLost ends the bridge.
func (w *reporter) run(ctx context.Context) error {
	interval := w.replica.cfg.Interval
	for ctx.Err() == nil && w.replica.follows() {
		_ = ratelimit.Sleep(ctx, interval/10)
	}
	failing := false
	for ctx.Err() == nil {
		size, err := w.report(ctx)
		switch {
		case errors.Is(err, standby.ErrTaken):
			w.replica.happened(superseded)
			return fmt.Errorf("%w: %w", standby.ErrLost, err)
		case err != nil && !failing && ctx.Err() == nil:
			w.replica.log.Warn("can't write the progress; a replica that takes over sends "+
				"more again meanwhile", "err", err)
		}
		failing = err != nil
		// An object of many units is written less often: 16 KiB a second.
		_ = ratelimit.Sleep(ctx, max(interval, time.Duration(size)*time.Second/(16<<10)))
	}
	return nil
}

// resign reports the progress once more and gives the lease up, when everything has ended in order.
func (w *reporter) resign(hard context.Context) {
	r := w.replica
	if r.follows() || hard.Err() != nil {
		return
	}
	if _, err := w.report(context.WithoutCancel(hard)); err != nil {
		r.log.Warn("can't write the progress at the end; the next leader sends more again", "err", err)
	}
	r.happened(stopped)
	r.cfg.Lease.Release()
}

// report writes the progress if it has changed, and returns about how many bytes that took.
func (w *reporter) report(ctx context.Context) (size int, err error) {
	if !w.replica.changing.TryAcquire(1) {
		return 0, nil // units that end and start again are not missing
	}
	p, err := w.current()
	w.replica.changing.Release(1)
	if err != nil || reflect.DeepEqual(p, w.last) {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	written, err := w.replica.cfg.ProgressLease.Put(ctx, &p)
	if err != nil {
		return written.Bytes, err
	}
	w.last = p
	w.warnShort(written)
	return written.Bytes, nil
}

// warnShort reports a progress that is too large to be written whole.
func (w *reporter) warnShort(written standby.PutResult) {
	value := 0.0
	if written.Short {
		value = 1
	}
	w.replica.metrics.short.Set(value)
	if written.Short && !w.short {
		w.replica.log.Warn("the progress is too large for its Lease, and leaves positions of "+
			"sinks out: a replica that takes over searches the brokers by time, does not resume "+
			"this one's producers in Kafka, and may send events again; split the configuration "+
			"between bridges, or use fewer topics and partitions",
			"units", len(w.last.Units), "bytes", written.Bytes)
	}
	w.short = written.Short
}

func (w *reporter) current() (p standby.Progress, err error) {
	r := w.replica
	p = standby.Progress{
		Units: map[string]standby.Unit{}, Feeds: map[string][]string{},
		Sinks: map[string][]byte{}, Outlines: map[string][]byte{},
		Version: r.configuration(), RedactionKey: r.redactionKey(),
	}
	outs := r.sinks.all()
	steps := map[string]*positionStep{}
	for _, out := range outs { // before the units are looked at: they cover what these are behind
		steps[out.key] = &positionStep{
			time: time.Now(), position: out.publisher.Position(),
			needs: map[string]informer.Frontier{},
		}
	}
	for _, u := range r.informers.all() {
		if err := w.addUnit(&p, u, steps); err != nil {
			return p, err
		}
	}
	for _, out := range outs {
		w.addPosition(&p, out, steps[out.key])
	}
	return p, nil
}

// addUnit adds the progress of a unit, and records which of it the new positions of its sinks need.
func (w *reporter) addUnit(
	p *standby.Progress, u *informer.Informer, steps map[string]*positionStep,
) (err error) {
	d := w.delivery(u)
	if p.Units[u.Name()], err = d.Progress(u); err != nil {
		return err
	}
	keys := u.Replica.SinkKeys()
	p.Feeds[u.Config().Informer] = keys
	frontier := d.Frontier(u)
	for _, key := range keys {
		if s := steps[key]; s != nil && !d.Covers(&frontier, key) {
			s.needs[u.Name()] = frontier
		}
	}
	return nil
}

// addPosition adds the position of a sink's log that all units allow.
func (w *reporter) addPosition(p *standby.Progress, out *sinkRunner, step *positionStep) {
	h := w.positionsOf(out.key)
	h.addStep(step)
	position := h.covered(time.Now(), func(unit string, f *informer.Frontier) bool {
		_, runs := p.Units[unit]
		return !runs || w.deliveries[unit].Covers(f, out.key) // one that has ended was delivered
	})
	if position == nil {
		return
	}
	p.Sinks[out.key] = position
	const large = 64 << 10
	if len(position) < large {
		return
	}
	if outline := out.publisher.Outline(position); outline != nil {
		p.Outlines[out.key] = outline
	}
}

// delivery returns that of an informer. It begins at the progress of the leader before.
func (w *reporter) delivery(u *informer.Informer) *informer.Delivery {
	d := w.deliveries[u.Name()]
	if d == nil || !d.Continues(u) {
		p, _ := w.replica.progressOf(u)
		d = u.Replica.NewDelivery(&p)
		w.deliveries[u.Name()] = d
	}
	return d
}

// positionsOf returns the past positions of a sink. They begin at that of the leader before.
func (w *reporter) positionsOf(key string) *pastPositions {
	h := w.positions[key]
	if h == nil {
		h = &pastPositions{}
		h.addStep(&positionStep{time: time.Now(), position: w.replica.inherited(key)})
		w.positions[key] = h
	}
	return h
}

// inherited returns the position of a sink that the leader before has reported.
func (r *replica) inherited(key string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress.Sinks[key]
}

// pastPositions are the positions of a sink's log from which another replica may have to read. A
// replica that takes over sends everything that the progress does not cover, unless it finds it
// behind the position. So a position is reported when the progress covers everything that was
// acknowledged before it.
type pastPositions struct{ steps []*positionStep }

// positionStep is a position that a sink had at a time.
type positionStep struct {
	time     time.Time
	position []byte
	needs    map[string]informer.Frontier // by unit, where the progress of that time is not so far
}

// positionDelay is how much of a broker's log a replica that takes over reads at least, in time.
// It covers what no version compares with the progress, such as items of a list that has not ended.
const positionDelay = 3 * time.Second

// maxPositions bounds the steps while something is not covered for long, as while one object has no
// topic; with more, every other one is dropped. Each may have 64 KiB and more.
const maxPositions = 16

func (h *pastPositions) addStep(s *positionStep) {
	if s.position == nil {
		return
	}
	if h.steps = append(h.steps, s); len(h.steps) <= maxPositions {
		return
	}
	kept := h.steps[:1]
	for i := 2; i < len(h.steps); i += 2 {
		kept = append(kept, h.steps[i])
	}
	h.steps = kept
}

// covered returns the newest position that can be reported now, or the oldest; nil for none.
func (h *pastPositions) covered(
	now time.Time, isCovered func(unit string, f *informer.Frontier) bool,
) []byte {
	isReady := func(s *positionStep) bool {
		for unit, f := range s.needs {
			if !isCovered(unit, &f) {
				return false
			}
		}
		return now.Sub(s.time) >= positionDelay
	}
	for len(h.steps) > 1 && isReady(h.steps[1]) {
		h.steps = slices.Delete(h.steps, 0, 1)
	}
	if len(h.steps) == 0 {
		return nil
	}
	return h.steps[0].position
}
