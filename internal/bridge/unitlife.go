package bridge

import (
	"context"
	"errors"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
)

// leftWith is what is left with a publisher of a sink; nil for nothing, and where the sink has another publisher by now. Where something else is to be
// taken out of objects now, the publisher gives back what was read before, which may have it: it is read again from the log on disk, where that
// is taken out.
func (h *heritage) leftWith(sink string, p *publisher.Publisher, redaction string) *informer.Leftover {
	left := h.left[sink]
	if h.with[sink] != p || left == nil {
		return nil
	}
	if h.redaction != redaction {
		left.Withdraw(p)
	}
	return left
}

// isUnclean says whether something was sent that is not known on disk.
func (h *heritage) isUnclean(b *Bridge) bool {
	if h.known {
		return h.unclean
	}
	return !b.cfg.DB.WasClean()
}

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

// part ends a unit that is leaving before everything is settled. What its sinks have not acknowledged lies on disk, unless that fails: then it is
// read again, and may be sent twice.
func (u *unit) part(ctx context.Context) {
	err := u.informer.Park(ctx)
	if err != nil {
		u.log.Warn("not all that waits for sinks could be put on disk; some of it may be sent twice", "err", err)
	}
	u.mu.Lock()
	abort := u.abort
	u.torn = err != nil
	u.mu.Unlock()
	abort(errParted)
}

// bequeath is what the unit, which has ended, leaves to one that takes its name, before its last state is committed.
func (u *unit) bequeath() heritage {
	u.mu.Lock()
	torn := u.torn
	u.mu.Unlock()
	h := heritage{left: u.informer.Leftovers(), with: u.publishers, redaction: u.cfg.Redaction, known: true, unclean: torn || !u.informer.Sure()}
	for _, relay := range u.relays {
		if !relay.Leads() {
			delete(h.left, relay.sink) // no publisher has it: it is read again
		}
	}
	return h
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
