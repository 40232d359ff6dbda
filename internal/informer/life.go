package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// state is where an informer is in its life; the diagram is in doc.go.
type state int

const (
	created  state = iota // its stages are connected, and nothing runs
	running               // it reads
	draining              // it reads no more, and its listeners wait for the sinks
	detached              // its listeners have ended: all is settled, or is pending in their cursors
	ended                 // its last state is committed
)

// lifeEvent is what happens to an informer.
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
	panic(fmt.Sprintf("informer: event %d in state %d", e, s))
}

// DrainReason is why an informer drains while the bridge runs.
type DrainReason string

// The reasons to drain.
const (
	NotDraining DrainReason = ""
	Gone        DrainReason = "gone"    // the API server does not serve its resource any more
	Moving      DrainReason = "moving"  // to another version of the API
	Changed     DrainReason = "changed" // the configuration is another
)

// Cause returns the error with which the informer stops reading.
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

// life is what starts and ends with an informer's run.
type life struct {
	ended chan struct{}  // closed when run has returned
	jobs  sync.WaitGroup // beside the informer, while it reads

	mu    sync.Mutex // guards all below; held for a few operations in memory
	state state
	why   DrainReason                          // it is to drain; set by Stop
	stop  context.CancelCauseFunc              // ends reading; set by Begin, as those below
	abort context.CancelCauseFunc              // ends everything
	start func(job func(context.Context)) bool // starts a job if it still reads
}

func newLife() life { return life{ended: make(chan struct{})} }

// Begin prepares the informer to be stopped and to run jobs. Call run in a goroutine of its own: it
// reads until read ends, and then works until everything read is settled, or until hard ends.
func (i *Informer) Begin(read, hard context.Context) (run func() error) {
	read, stop := context.WithCancelCause(read)
	hard, abort := context.WithCancelCause(hard)
	l := &i.life
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
		return i.run(read, hard, stop)
	}
}

func (i *Informer) run(read, hard context.Context, stop context.CancelCauseFunc) error {
	done := make(chan error, 1)
	go func() {
		defer i.fifo.Close()
		done <- i.reflector.Run(read)
	}()
	err := i.stages.Run(hard)
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

// Stop stops the reading, while others run. The informer ends when everything read is settled.
func (i *Informer) Stop(why DrainReason) {
	l := &i.life
	l.mu.Lock()
	l.state, l.why = l.state.after(stopped), why
	stop := l.stop
	l.mu.Unlock()
	stop(why.Cause())
}

// Draining returns why the informer drains, if it does for a reason of its own.
func (i *Informer) Draining() DrainReason {
	i.life.mu.Lock()
	defer i.life.mu.Unlock()
	return i.life.why
}

// Abort ends a draining informer before everything is settled: changes that its sinks have not
// acknowledged wait on disk. Deltas that were read are decided before, if that takes no longer than
// a moment; else they are read again.
func (i *Informer) Abort(ctx context.Context) {
	const moment = time.Second
	select {
	case <-i.stages.Decided():
	case <-time.After(moment):
	case <-ctx.Done():
	}
	i.life.mu.Lock()
	abort := i.life.abort
	i.life.mu.Unlock()
	abort(errAborted)
}

// Ended is closed when run has returned.
func (i *Informer) Ended() <-chan struct{} { return i.life.ended }

// Spool puts on disk the changes that the sinks have not acknowledged. Call it once, when the
// informer has ended.
func (i *Informer) Spool() error { return i.stages.End() }

// Close commits the last state and unregisters the metrics. It can be called again after an error.
func (i *Informer) Close() error {
	if err := i.env.Committer.Untrack(i.stages.Log()); err != nil {
		return err
	}
	i.release()
	i.life.happened(closed)
	return nil
}

// release returns what the informer shares with others.
func (i *Informer) release() {
	i.metrics.End()
	i.accounts.close()
}

// accounts are the informer's shares of the Env's Budget.
type accounts struct{ fifo, log *ratelimit.Account }

func (a *accounts) close() {
	a.fifo.Close()
	a.log.Close()
}

// IsClean reports whether every event ever sent is known: events that the run before may have sent
// were read back, or listed.
func (i *Informer) IsClean() bool { return i.stages.IsClean() }

// Go runs a job beside the informer while it reads, and reports whether it does.
func (i *Informer) Go(job func(context.Context)) bool {
	i.life.mu.Lock()
	defer i.life.mu.Unlock()
	return i.life.state == running && i.life.start(job)
}

func (l *life) happened(e lifeEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = l.state.after(e)
}
