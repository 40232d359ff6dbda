package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/publisher"
)

// sinkRunner is a sink that runs, with its publisher and metrics.
type sinkRunner struct {
	publisher   *publisher.Publisher
	name        string
	key         string // of it among replicas: its name, and where it sends to
	metrics     []*metric.Scope
	keepsNewest bool                    // SinkConfig.KeepsNewest
	delivered   deliveries              // for FollowUp
	stop        context.CancelCauseFunc // set before it runs; nil while another replica leads
	ended       chan struct{}           // closed when it has ended
}

// keyOf distinguishes sinks that may have one name in the configurations of two replicas.
func keyOf(sc *SinkConfig) string {
	if sc.Target == "" {
		return sc.Name
	}
	return sc.Name + "@" + sc.Target
}

// sinkRunners are the sinks that run, in the order of the configuration.
type sinkRunners struct {
	mu   sync.Mutex
	list []*sinkRunner // guarded by mu; replaced and never changed, so that a reader may go through it
}

func (o *sinkRunners) all() []*sinkRunner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.list
}

// get returns the sink of a name, nil when there is none.
func (o *sinkRunners) get(name string) *sinkRunner {
	for _, out := range o.all() {
		if out.name == name {
			return out
		}
	}
	return nil
}

// forInformer returns the sink of a name, as an informer needs it.
func (o *sinkRunners) forInformer(name string) (s informer.Sink, ok bool) {
	out := o.get(name)
	if out == nil {
		return s, false
	}
	return informer.Sink{Publisher: out.publisher, Key: out.key}, true
}

func (o *sinkRunners) set(list []*sinkRunner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = list
}

// ErrSink is returned by Run when a sink can't be opened for a reason that the operator must
// remove.
var ErrSink = errors.New("can't be opened")

// errChanged ends sinks that another configuration has not, or replaces.
var errChanged = errors.New("the configuration has changed")

// newSinkRunner makes a sink's publisher, and starts nothing. A patient one retries where only an
// operator can remove the cause. onLoss is called where the sink's destination has lost events.
func (b *Bridge) newSinkRunner(
	sc SinkConfig, patient bool, onLoss func(ctx context.Context, round int64) error,
) (*sinkRunner, error) {
	pc := sc.Publisher
	pc.Sink, pc.Name, pc.Log, pc.Patient = sc.Sink, sc.Name, b.log, patient
	scope := metric.NewScope(b.cfg.Registerer, prometheus.Labels{"sink": sc.Name})
	pc.Registerer = scope
	if look := b.cfg.OnSettle; look != nil {
		pc.OnSettle = func(settled []*publisher.Item) { look(sc.Name, settled) }
	}
	pc.OnLoss = onLoss
	if b.cfg.Standby != nil {
		pc.Gate = b.cfg.Standby.Lease.Gate
	}
	var err error
	if pc.Saved, err = b.saved(sc.Name); err != nil {
		return nil, fmt.Errorf("sink %s: %w", sc.Name, err)
	}
	p, err := publisher.New(pc)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", sc.Name, err)
	}
	out := &sinkRunner{
		publisher: p, name: sc.Name, key: keyOf(&sc), metrics: []*metric.Scope{scope, sc.Scope},
		keepsNewest: sc.KeepsNewest, ended: make(chan struct{}),
	}
	for _, s := range out.metrics {
		s.Begin()
	}
	b.committer.AddSink(sc.Name, p)
	return out, nil
}

// saved returns the saved position of a sink.
func (b *Bridge) saved(sink string) (s publisher.SavedPosition, err error) {
	if s.Position, err = b.cfg.DB.SinkPosition(sink); err == nil {
		s.ReadBackIDs, err = b.cfg.DB.SinkReadBack(sink)
	}
	return s, err
}

// startSink runs a sink until the stage, whose context ctx is, ends, or the sink is removed.
func (b *Bridge) startSink(ctx context.Context, publishing *stage, out *sinkRunner) {
	own, stop := context.WithCancelCause(ctx)
	out.stop = stop
	publishing.start(ctx, "sink "+out.name, func(context.Context) error {
		defer close(out.ended)
		defer stop(errDone)
		err := runSink(own, out.publisher)
		if err != nil && errors.Is(context.Cause(own), errChanged) {
			b.log.Warn("a sink that is not used any more did not end well", "sink", out.name, "err", err)
			return nil
		}
		return err
	})
}

func runSink(ctx context.Context, p *publisher.Publisher) error {
	err := p.Run(ctx)
	select {
	case <-p.Opened():
		return err
	default:
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrSink, err)
}

// endSink stops a sink and removes it. Its informers have ended. It can be called again after an
// error.
func (b *Bridge) endSink(out *sinkRunner) error {
	if out.stop != nil {
		out.stop(errChanged)
		<-out.ended
	}
	if err := b.committer.RemoveSink(out.name); err != nil {
		return fmt.Errorf("sink %s: %w", out.name, err)
	}
	for _, s := range out.metrics {
		s.End()
	}
	b.sinks.set(slices.DeleteFunc(slices.Clone(b.sinks.all()),
		func(other *sinkRunner) bool { return other == out }))
	return nil
}

// errDone is the cause with which a stage is stopped when nothing needs it any more.
var errDone = errors.New("done")

// stage is a group of goroutines that are stopped together, after the stages before them.
type stage struct {
	stop   context.CancelCauseFunc
	failed context.CancelCauseFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	late []error // what went wrong after the stage was stopped, such as the last commit
}

// newStage makes a stage that ends with parent, and the context that ends with the stage. A failure
// in it is passed to failed, which ends everything.
func newStage(parent context.Context, failed context.CancelCauseFunc) (*stage, context.Context) {
	ctx, stop := context.WithCancelCause(parent)
	return &stage{stop: stop, failed: failed}, ctx
}

// start runs one goroutine of the stage, whose context ctx is. A name is put before its error.
func (s *stage) start(ctx context.Context, name string, run func(context.Context) error) {
	s.wg.Go(func() {
		err := run(ctx)
		if err != nil && name != "" {
			err = fmt.Errorf("%s: %w", name, err)
		}
		switch {
		case err == nil, errors.Is(err, context.Canceled),
			ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		case ctx.Err() == nil:
			s.failed(err)
		case errors.Is(err, publisher.ErrStopped): // follows from what was reported already
		default:
			s.mu.Lock()
			defer s.mu.Unlock()
			s.late = append(s.late, err)
		}
	})
}

// wait waits until the stage's goroutines have ended by themselves.
func (s *stage) wait() error {
	s.wg.Wait()
	s.stop(errDone)
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.late...)
}

// end stops the stage and waits for it.
func (s *stage) end() error {
	s.stop(errDone)
	return s.wait()
}
