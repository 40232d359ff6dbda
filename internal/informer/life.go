package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// state is where a pipeline is in its life; the diagram is in doc.go.
type state int

const (
	created  state = iota // its stages are connected, and nothing runs
	running               // it reads
	draining              // it reads no more, and its listeners wait for the sinks
	detached              // its listeners have ended: all is settled, or is pending in their cursors
	ended                 // its last state is committed
)

// lifeEvent is what happens to a pipeline.
type lifeEvent int

const (
	begun    lifeEvent = iota
	stopped            // for a Drain
	returned           // everything is settled, or it was aborted, or has failed, or the bridge stops
	closed             // the last commit was written
)

// after returns the state after an event. It panics for an event that can't happen in this state.
func (s state) after(e lifeEvent) state {
	switch {
	case s == created && e == begun:
		return running
	case s == running && e == stopped:
		return draining
	case (s == running || s == draining) && e == returned:
		return detached
	case (s == draining || s == detached) && e == stopped: // for another reason
		return s
	case s == detached && e == closed:
		return ended
	}
	panic(fmt.Sprintf("pipeline: event %d in state %d", e, s))
}

// DrainReason is why a pipeline is draining while the bridge runs.
type DrainReason string

// The reasons to drain.
const (
	NotDraining DrainReason = ""
	Gone        DrainReason = "gone"    // the API server does not serve its resource any more
	Moving      DrainReason = "moving"  // to another version of the API
	Changed     DrainReason = "changed" // the configuration is another
)

// Cause is the error with which the pipeline stops reading.
func (d DrainReason) Cause() error {
	switch d {
	case Gone:
		return errGone
	case Moving:
		return errMoving
	case Changed:
		return errChanged
	case NotDraining:
	}
	return errDone
}

var (
	errGone    = errors.New("the API server does not serve the resource any more")
	errMoving  = errors.New("the resource moves to another version of the API")
	errChanged = errors.New("the configuration has changed")
	errDone    = errors.New("done")
	errAborted = errors.New("ended before everything was sent")
)

// life is what starts and ends with a pipeline's run.
type life struct {
	ended chan struct{}  // closed when run has returned
	jobs  sync.WaitGroup // beside the pipeline, while it reads

	mu    sync.Mutex // guards all below; held for a few operations in memory
	state state
	why   DrainReason                          // it is to drain; set by Stop
	stop  context.CancelCauseFunc              // ends reading; set by Begin, as those below
	abort context.CancelCauseFunc              // ends everything
	start func(job func(context.Context)) bool // starts a job if it still reads
}

func newLife() life { return life{ended: make(chan struct{})} }

// Begin makes the pipeline one that can be stopped, and whose jobs run. Call run in a goroutine of
// its own. It reads until read ends, and then until everything read is settled, or until hard ends.
func (p *Informer) Begin(read, hard context.Context) (run func() error) {
	read, stop := context.WithCancelCause(read)
	hard, abort := context.WithCancelCause(hard)
	l := &p.life
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = l.state.after(begun)
	l.stop, l.abort = stop, abort
	l.start = func(job func(context.Context)) bool {
		if read.Err() != nil {
			return false
		}
		l.jobs.Go(func() { job(read) })
		return true
	}
	return func() error {
		defer close(l.ended)
		defer abort(errDone)
		defer l.jobs.Wait()
		defer l.happened(returned) // from now on no job starts
		return p.run(read, hard, stop)
	}
}

func (p *Informer) run(read, hard context.Context, stop context.CancelCauseFunc) error {
	done := make(chan error, 1)
	go func() {
		defer p.fifo.Close()
		done <- p.reflector.Run(read)
	}()
	err := p.stages.Run(hard)
	if err != nil {
		stop(err) // the informer takes nothing of what the reflector reads
	}
	readErr := <-done
	stopped := read.Err() != nil
	stop(errDone)
	switch {
	case errors.Is(context.Cause(hard), errAborted):
		return nil
	case err == nil && !stopped:
		return readErr
	}
	return err
}

// Stop has the pipeline read no more, while others run. It ends when everything read is settled.
func (p *Informer) Stop(why DrainReason) {
	l := &p.life
	l.mu.Lock()
	l.state, l.why = l.state.after(stopped), why
	stop := l.stop
	l.mu.Unlock()
	stop(why.Cause())
}

// Draining is why it drains, if it does for a reason of its own.
func (p *Informer) Draining() DrainReason {
	p.life.mu.Lock()
	defer p.life.mu.Unlock()
	return p.life.why
}

// Abort ends a draining pipeline before everything is settled: what its sinks have not acknowledged
// waits on disk. What has been read is decided before, if that takes no longer than a moment; else
// it is read again.
func (p *Informer) Abort(ctx context.Context) {
	const moment = time.Second
	select {
	case <-p.stages.Decided():
	case <-time.After(moment):
	case <-ctx.Done():
	}
	p.life.mu.Lock()
	abort := p.life.abort
	p.life.mu.Unlock()
	abort(errAborted)
}

// Ended is closed when run has returned.
func (p *Informer) Ended() <-chan struct{} { return p.life.ended }

// Spool puts on disk what the sinks have not acknowledged. Call it once, when the pipeline has
// ended.
func (p *Informer) Spool() error { return p.stages.End() }

// Close commits the last state and unregisters the metrics. It can be called again after an error.
func (p *Informer) Close() error {
	if err := p.env.Committer.Untrack(p.stages.Log()); err != nil {
		return err
	}
	p.release()
	p.life.happened(closed)
	return nil
}

// release gives back what the pipeline shares with others.
func (p *Informer) release() {
	p.metrics.End()
	p.accounts.close()
}

// accounts are what the pipeline holds of the Env's Budget.
type accounts struct{ fifo, log *ratelimit.Account }

func (a *accounts) close() {
	a.fifo.Close()
	a.log.Close()
}

// IsClean reports whether all that was sent is known: whether what the run before may have sent was
// read back, or listed.
func (p *Informer) IsClean() bool { return p.stages.IsClean() }

// Go runs a job beside the pipeline while it reads, and reports whether it does.
func (p *Informer) Go(job func(context.Context)) bool {
	p.life.mu.Lock()
	defer p.life.mu.Unlock()
	return p.life.state == running && p.life.start(job)
}

func (l *life) happened(e lifeEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = l.state.after(e)
}
