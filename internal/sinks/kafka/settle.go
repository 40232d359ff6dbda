package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// send sends a batch until the broker has given its final answer (stored, refused), or no answer
// can be expected (denied, unreachable, stopped). It sends the same bytes each time, with two
// exceptions: another time after the broker has refused the one before, and a new producer identity
// after the broker has forgotten the old one and the batch was found to be missing.
func (l *lane) send(ctx context.Context, batch *inflightBatch) (result outcome, err error) {
	began := time.Now()
	log := l.newRetryLog(began, "take the batch")
	defer func() {
		log.done(result)
		l.sink.metrics.observe(result, batch, time.Since(began))
	}()
	for attempt := 0; ; attempt++ {
		offset, err := l.cluster.produce(ctx, l.topic, l.partition, batch.bytes)
		result := classify(err)
		batch.recordAttempt(result, err)
		switch result {
		case forgotten:
			result, err = l.recoverProducer(ctx, batch, attempt, err)
		case misdated:
			result, err = l.redate(batch, err)
		case stored:
			result, err = l.accept(ctx, batch, offset)
		default:
		}
		if result != resend {
			return result, err
		}
		log.attemptFailed(attempt, err)
		if result := l.waitToRetry(ctx, attempt, &log); result != resend {
			return result, log.cause(result, err)
		}
	}
}

// accept moves the lane behind an acknowledged batch, if the acknowledgement is about this one.
// When that can't be verified now, the next call sends the same batch again: the broker knows it,
// and answers at once.
func (l *lane) accept(ctx context.Context, batch *inflightBatch, offset int64) (outcome, error) {
	if l.unverified() {
		batch.unknown = true
		if result, err := l.verify(ctx, batch, offset); result != stored {
			batch.unknown = batch.unknown && result != overtaken
			return result, err
		}
	}
	l.advance(batch, offset)
	return stored, nil
}

// redate gives a batch the present time after the broker has refused the one before: this machine's
// clock is wrong, or the broker's. The records' own times are no fault of a clock, and stay.
//
// The sequence number stays, and with it the number of records: an earlier attempt without an
// answer may be stored, since brokers check the time before they look for duplicates. They compare
// batches by producer, number and record count, so they recognize this one.
func (l *lane) redate(batch *inflightBatch, err error) (outcome, error) {
	if l.sink.encode.eventTime {
		return refused, err
	}
	redate(batch.bytes, time.Now())
	return resend, fmt.Errorf("%w: %w", errClock, err)
}

// recordAttempt remembers whether an attempt may have stored the batch.
func (batch *inflightBatch) recordAttempt(result outcome, err error) {
	if result == resend || result == stopped {
		if _, unsent := errors.AsType[*unsentError](err); !unsent {
			batch.unknown = true
		}
	}
}

// errGaveUp is a temporary error that lasted until the lane's deadline.
var errGaveUp = errors.New("it took too long")

// retry repeats a request that stores nothing until it is answered, or the lane's deadline has
// passed.
func (l *lane) retry(ctx context.Context, what string, try func() error) error {
	log := l.newRetryLog(time.Now(), what)
	for attempt := 0; ; attempt++ {
		err := try()
		if result := classify(err); result != resend {
			log.done(result)
			return err
		}
		log.attemptFailed(attempt, err)
		if !l.deadline.IsZero() && time.Now().After(l.deadline) {
			log.done(resend)
			return fmt.Errorf("%w: %w", errGaveUp, err)
		}
		if result := l.waitToRetry(ctx, attempt, &log); result != resend {
			log.done(result)
			return errors.Join(log.cause(result, err), result.missingCause())
		}
	}
}

// waitToRetry waits before the next attempt, and looks up the partition's leader. It returns
// resend, stopped when ctx has ended, or unreachable when no broker has answered for patience: then
// the caller gets an error, so that the whole sink can report the outage.
func (l *lane) waitToRetry(ctx context.Context, attempt int, t *retryLog) outcome {
	if ratelimit.Sleep(ctx, backoff(attempt)) != nil {
		return stopped
	}
	_, err := l.cluster.refresh(ctx, l.topic)
	if _, answered := errors.AsType[kafkago.Error](err); err == nil || answered {
		t.heard = time.Now()
	}
	if t.away = err; time.Since(t.heard) > patience {
		return unreachable
	}
	return resend
}

// patience is how long a lane tries to reach any broker before it reports that there is none.
const patience = 5 * time.Second

// backoff grows from 50 ms to 2 s; the random half spreads the retries of many lanes to a broker
// that came back.
func backoff(attempt int) time.Duration {
	const first, longest = 50 * time.Millisecond, 2 * time.Second
	d := min(longest, first<<min(attempt, 10))
	return d/2 + rand.N(d/2)
}

// retryLog logs and counts the retries of a lane. It does not log the first one, for which a moved
// leader is reason enough, nor those of a new topic's first moments. Then it logs at once, every
// half minute, and when the lane succeeds.
type retryLog struct {
	lane    *lane
	what    string // the operation that is retried
	began   time.Time
	heard   time.Time // when a broker has last answered anything
	warned  time.Time
	counted bool
	away    error // why no broker answered the last question
}

// cause is why a request got no answer: that no broker could be asked says more than what the
// latest metadata, now old, say.
func (t *retryLog) cause(result outcome, err error) error {
	if result == unreachable && t.away != nil {
		return t.away
	}
	return err
}

const (
	warnEvery   = 30 * time.Second
	quietPeriod = 500 * time.Millisecond
)

func (l *lane) newRetryLog(began time.Time, what string) retryLog {
	return retryLog{lane: l, what: what, began: began, heard: began}
}

func (t *retryLog) attemptFailed(attempt int, err error) {
	s := t.lane.sink
	s.metrics.resends.With(reasonOf(err)).Inc()
	if attempt > 0 {
		s.blocked.set(t.lane, err, time.Since(t.began))
	}
	if !t.counted {
		t.counted = true
		s.metrics.waiting.Add(1)
	}
	if attempt == 0 || time.Since(t.began) < quietPeriod || time.Since(t.warned) < warnEvery {
		s.log.Debug("trying again", "what", t.what, "lane", t.lane.name, "attempt", attempt+1,
			"err", err)
		return
	}
	t.warned = time.Now()
	s.log.Warn("partition does not answer as expected, retrying until it does", "what", t.what,
		"lane", t.lane.name,
		"attempt", attempt+1, "for", time.Since(t.began).Round(time.Millisecond), "err", explain(err))
}

func (t *retryLog) done(result outcome) {
	if t.counted {
		t.lane.sink.metrics.waiting.Add(-1)
	}
	if result != stopped { // then the next call continues
		t.lane.sink.blocked.clear(t.lane)
	}
	if !t.warned.IsZero() && result != resend && result != stopped && result != unreachable {
		t.lane.sink.log.Info("partition has answered", "lane", t.lane.name,
			"outcome", result.String(),
			"after", time.Since(t.began).Round(time.Millisecond))
	}
}

// reasonOf is an error as a metric label: one of Kafka's codes, or a state of the connection.
func reasonOf(err error) string {
	if code, ok := errors.AsType[kafkago.Error](err); ok {
		return cmp.Or(code.Title(), "error code "+strconv.Itoa(int(code)))
	}
	switch _, unsent := errors.AsType[*unsentError](err); {
	case errors.Is(err, errNoLeader):
		return "no leader"
	case unsent:
		return "not connected"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	default:
		return "connection lost"
	}
}

// isTooLarge reports whether a refusal was about the size.
func isTooLarge(err error) bool {
	return errors.Is(err, kafkago.MessageSizeTooLarge) || errors.Is(err, kafkago.RecordListTooLarge)
}
