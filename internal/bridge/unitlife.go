package bridge

import (
	"context"
	"errors"
	"time"
)

// begin gives the context for reading; leave ends it. part ends everything, as the end of hard does.
func (u *unit) begin(read, hard context.Context) context.Context {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reading, u.stop = context.WithCancelCause(read)
	u.hard, u.abort = context.WithCancelCause(hard)
	return u.reading
}

// leave stops the unit while the others go on: it reads no more, and ends when everything read is settled.
func (u *unit) leave(why leaving, cause error) {
	u.mu.Lock()
	u.why = why
	stop := u.stop
	u.mu.Unlock()
	stop(cause)
}

// leaving says why the unit is being stopped, if it is.
func (u *unit) leaving() leaving {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.why
}

// errParted is the cause with which a unit is ended before everything is settled.
var errParted = errors.New("ended before everything was sent")

// part ends a unit that is leaving before everything is settled: what its sinks have not acknowledged
// waits on disk. What has been read is decided before, if that takes no longer than a moment; else it
// is read again.
func (u *unit) part(ctx context.Context) {
	const moment = time.Second
	select {
	case <-u.informer.Decided():
	case <-time.After(moment):
	case <-ctx.Done():
	}
	u.mu.Lock()
	abort := u.abort
	u.mu.Unlock()
	abort(errParted)
}

// run reads until read ends, and then until everything read is settled, or until hard ends.
func (u *unit) run(read context.Context) error {
	defer close(u.ended)
	u.mu.Lock()
	hard, abort, leave := u.hard, u.abort, u.stop
	u.mu.Unlock()
	defer abort(errDone)
	defer u.jobs.Wait()
	defer u.endJobs()
	read, stop := context.WithCancelCause(read)
	done := make(chan error, 1)
	go func() {
		defer u.fifo.Close()
		done <- u.reflector.Run(read)
	}()
	err := u.informer.Run(hard)
	if err != nil {
		stop(err) // nobody takes what the reflector reads
	}
	readErr := <-done
	stopped := read.Err() != nil
	stop(errDone)
	leave(errDone)
	switch {
	case errors.Is(context.Cause(hard), errParted):
		return nil
	case err == nil && !stopped:
		return readErr
	}
	return err
}

// startJob runs something beside the unit while it reads, and says whether it did.
func (u *unit) startJob(job func(context.Context)) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reading == nil || u.reading.Err() != nil {
		return false
	}
	reading := u.reading
	u.jobs.Go(func() { job(reading) })
	return true
}

// endJobs lets no job start any more.
func (u *unit) endJobs() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stop(errDone)
}
