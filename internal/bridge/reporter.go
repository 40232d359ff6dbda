package bridge

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/kubebridge/bridge/internal/pipeline"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/standby"
)

// reporter writes this replica's progress while it leads. It is owned by one goroutine at a time.
type reporter struct {
	replica    *replica
	deliveries map[string]*pipeline.Delivery // by unit
	positions  map[string]*positionHistory   // by key of the sink
	last       standby.Progress
	short      bool // the last one left positions of sinks out
}

func newReporter(r *replica) *reporter {
	return &reporter{
		replica: r, deliveries: map[string]*pipeline.Delivery{},
		positions: map[string]*positionHistory{},
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
		w.replica.log.Warn("the progress is too large for its Lease, and leaves positions of sinks "+
			"out: a replica that takes over "+
			"searches the brokers by time, does not resume this one's producers in Kafka, and may "+
			"send events again; "+
			"split the configuration between bridges, or use fewer topics and partitions",
			"units", len(w.last.Units), "bytes", written.Bytes)
	}
	w.short = written.Short
}

// current returns the progress of now.
func (w *reporter) current() (p standby.Progress, err error) {
	r := w.replica
	p = standby.Progress{
		Units: map[string]standby.Unit{}, Feeds: map[string][]string{},
		Sinks: map[string][]byte{}, Outlines: map[string][]byte{},
		Version: r.configuration(), RedactionKey: r.redactionKey(),
	}
	for _, u := range r.roster.all() {
		if p.Units[u.Name()], err = w.delivery(u).Progress(u); err != nil {
			return p, err
		}
		p.Feeds[u.Config().Informer] = u.Replica.SinkKeys()
	}
	for _, out := range r.sinks.all() {
		position := w.history(out.key).at(time.Now(), out.publisher.Position())
		if position == nil {
			continue
		}
		p.Sinks[out.key] = position
		const large = 64 << 10
		if len(position) < large {
			continue
		}
		if outline := out.publisher.Outline(position); outline != nil {
			p.Outlines[out.key] = outline
		}
	}
	return p, nil
}

// delivery of a pipeline. It begins where the leader before stood.
func (w *reporter) delivery(u *pipeline.Pipeline) *pipeline.Delivery {
	d := w.deliveries[u.Name()]
	if d == nil || !d.Continues(u) {
		p, _ := w.replica.progressOf(u)
		d = u.Replica.NewDelivery(&p)
		w.deliveries[u.Name()] = d
	}
	return d
}

// history of a sink's positions. It begins where the leader before stood.
func (w *reporter) history(key string) *positionHistory {
	h := w.positions[key]
	if h == nil {
		h = &positionHistory{}
		h.at(time.Now(), w.replica.inherited(key))
		w.positions[key] = h
	}
	return h
}

// inherited is the position of a sink that the leader before has reported.
func (r *replica) inherited(key string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress.Sinks[key]
}

// positionHistory returns positions of a sink's log with a delay. A change may be with the broker
// before the progress covers it, since that waits for the changes before it and for a later one. A
// replica that takes over reads the log from there.
type positionHistory struct{ steps []positionAt }

type positionAt struct {
	time     time.Time
	position []byte
}

// positionDelay is how much of a broker's log a replica that takes over reads, in time.
const positionDelay = 3 * time.Second

// at adds the position of now and returns the newest that is old enough, or the oldest.
func (h *positionHistory) at(now time.Time, position []byte) []byte {
	if position != nil {
		h.steps = append(h.steps, positionAt{now, position})
	}
	for len(h.steps) > 1 && now.Sub(h.steps[1].time) >= positionDelay {
		h.steps = h.steps[1:]
	}
	if len(h.steps) == 0 {
		return nil
	}
	return h.steps[0].position
}
