package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// settle sends a batch until the broker has answered it for good (stored, refused), or nobody will (denied, away, stopped). It
// sends the same bytes each time, but for a new producer identity after the broker has forgotten the old one and the batch was found to be missing.
func (l *lane) settle(ctx context.Context, f *frozen) (outcome verdict, err error) {
	began := time.Now()
	trouble := l.newTrouble(began, "take the batch")
	defer func() {
		trouble.over(outcome)
		l.sink.metrics.settled(outcome, f, time.Since(began))
	}()
	for attempt := 0; ; attempt++ {
		offset, err := l.cluster.produce(ctx, l.topic, l.partition, f.bytes)
		outcome := sort(err)
		f.note(outcome, err)
		switch outcome {
		case forgotten:
			outcome, err = l.recover(ctx, f, attempt, err)
		case stored:
			outcome, err = l.take(ctx, f, offset)
		default:
		}
		if outcome != resend {
			return outcome, err
		}
		trouble.retry(attempt, err)
		if outcome := l.again(ctx, attempt, &trouble); outcome != resend {
			return outcome, err
		}
	}
}

// take moves the lane behind an acknowledged batch, if it is this one. When that can't be seen now, the same batch is sent again by the next call: the
// broker knows it, and answers at once.
func (l *lane) take(ctx context.Context, f *frozen, offset int64) (verdict, error) {
	if l.unproven {
		f.unknown = true
		if outcome, err := l.prove(ctx, f, offset); outcome != stored {
			f.unknown = f.unknown && outcome != overtaken
			return outcome, err
		}
	}
	l.advance(f, offset)
	return stored, nil
}

// note remembers whether an attempt may have stored the batch.
func (f *frozen) note(outcome verdict, err error) {
	if outcome == resend || outcome == stopped {
		if _, unsent := errors.AsType[*unsentError](err); !unsent {
			f.unknown = true
		}
	}
}

// errImpatient is an error that may heal, and that the lane does not wait for.
var errImpatient = errors.New("it took too long")

// until repeats something that stores nothing until it is answered, or the lane's deadline has passed.
func (l *lane) until(ctx context.Context, what string, try func() error) error {
	trouble := l.newTrouble(time.Now(), what)
	for attempt := 0; ; attempt++ {
		err := try()
		if outcome := sort(err); outcome != resend {
			trouble.over(outcome)
			return err
		}
		trouble.retry(attempt, err)
		if !l.deadline.IsZero() && time.Now().After(l.deadline) {
			trouble.over(resend)
			return fmt.Errorf("%w: %w", errImpatient, err)
		}
		if outcome := l.again(ctx, attempt, &trouble); outcome != resend {
			trouble.over(outcome)
			return errors.Join(err, outcome.cause())
		}
	}
}

// again waits before the next attempt, and looks where the partition's leader is now. It gives resend, stopped when ctx
// has ended, or away when not one broker has answered for the sink's patience: then the caller is told, so that the whole sink can
// show that it is cut off.
func (l *lane) again(ctx context.Context, attempt int, t *trouble) verdict {
	if ratelimit.Sleep(ctx, backoff(attempt)) != nil {
		return stopped
	}
	_, err := l.cluster.refresh(ctx, l.topic)
	if _, answered := errors.AsType[kafkago.Error](err); err == nil || answered {
		t.heard = time.Now()
	}
	if time.Since(t.heard) > patience {
		return away
	}
	return resend
}

// patience is how long a lane tries to reach any broker before it says that there is none.
const patience = 5 * time.Second

// backoff grows from 50 ms to 2 s; the random half keeps the lanes of a broker that came back apart.
func backoff(attempt int) time.Duration {
	const first, longest = 50 * time.Millisecond, 2 * time.Second
	d := min(longest, first<<min(attempt, 10))
	return d/2 + rand.N(d/2)
}

// trouble tells an operator of a lane that has to send again: not the first time, which a moved leader is enough for,
// nor in the first moments of a topic, then at once, then every half minute, and when it is over.
type trouble struct {
	lane   *lane
	what   string // is to be done
	began  time.Time
	heard  time.Time // when a broker has last answered anything
	warned time.Time
	on     bool
}

const (
	warnEvery = 30 * time.Second
	usual     = 500 * time.Millisecond
)

func (l *lane) newTrouble(began time.Time, what string) trouble {
	return trouble{lane: l, what: what, began: began, heard: began}
}

func (t *trouble) retry(attempt int, err error) {
	s := t.lane.sink
	s.metrics.resends.WithLabelValues(reasonOf(err)).Inc()
	if attempt > 0 {
		s.blocked.note(t.lane, err)
	}
	if !t.on {
		t.on = true
		s.metrics.waiting.Inc()
	}
	if attempt == 0 || time.Since(t.began) < usual || time.Since(t.warned) < warnEvery {
		s.log.Debug("trying again", "what", t.what, "lane", t.lane.name, "attempt", attempt+1, "err", err)
		return
	}
	t.warned = time.Now()
	s.log.Warn("partition does not do what is asked for, trying again until it does", "what", t.what, "lane", t.lane.name,
		"attempt", attempt+1, "for", time.Since(t.began).Round(time.Millisecond), "err", err)
}

func (t *trouble) over(outcome verdict) {
	if t.on {
		t.lane.sink.metrics.waiting.Dec()
		t.lane.sink.blocked.forget(t.lane)
	}
	if !t.warned.IsZero() && outcome != resend {
		t.lane.sink.log.Info("partition has answered", "lane", t.lane.name, "outcome", outcome.String(),
			"after", time.Since(t.began).Round(time.Millisecond))
	}
}

// reasonOf is an error as a metric label: one of Kafka's codes, or what happened to the connection.
func reasonOf(err error) string {
	if code, ok := errors.AsType[kafkago.Error](err); ok {
		return code.Title()
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

// isTooLarge says whether a refusal was about the size.
func isTooLarge(err error) bool {
	return errors.Is(err, kafkago.MessageSizeTooLarge) || errors.Is(err, kafkago.RecordListTooLarge)
}
