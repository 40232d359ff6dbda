package kafka

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/ratelimit"
)

// readback is the reading of a partition from a saved place on, and how far it has come: a later call goes on there.
type readback struct {
	saved    place
	deadline time.Time // until when a log that ends before the place may be of a leader that is none any more
	final    bool      // it is another log behind that; else the lane reads it, later
	begun    bool      // tail is known
	tail     tail
	heir     place // as of what was read
}

// recall reads a lane's partition from a place on; from a little before the time of the saved position when that is unused. It gives what the lane
// carries on with, unused when the log does not tell.
func (l *lane) recall(ctx context.Context, r *readback, found func(id string)) (place, error) {
	if !r.begun {
		if err := l.beginReadback(ctx, r); err != nil {
			return unused, err
		}
	}
	err := l.read(ctx, &r.tail, pages{wanted: every, batch: func(b batchHead, ids []string) error {
		for _, id := range ids {
			found(id)
		}
		r.heir = r.heir.behind(b)
		return nil
	}})
	if err != nil || r.tail.cut {
		return unused, err
	}
	return r.heir, nil
}

// beginReadback finds out which part of the log is to be read.
func (l *lane) beginReadback(ctx context.Context, r *readback) error {
	start, end, err := l.boundsBehind(ctx, r)
	if err != nil {
		return err
	}
	from := r.saved.offset
	if from < 0 {
		if from, err = l.sinceSaved(ctx, start, end); err != nil {
			return err
		}
	}
	r.tail = tail{from: max(start, from), end: end, cut: start > from || from > end}
	if r.heir = unused; r.saved.producer >= 0 {
		r.heir = r.saved
		r.heir.offset = end
	}
	r.begun = true
	return nil
}

// behind is where the producer of a place goes on after a batch of the log: with the next sequence number. The offset is that of the end of what is read, where its
// next batch will lie, or behind it.
func (p place) behind(b batchHead) place {
	if p.producer >= 0 && b.producer == p.producer && b.epoch >= p.epoch {
		p.epoch, p.sequence = b.epoch, sequenceAfter(b.sequence, b.records)
	}
	return p
}

// sinceSaved is where a partition is read from that the saved position does not hold: by the time of its records. Where those are the objects' own and tell nothing
// of when they were written, so many records are read.
func (l *lane) sinceSaved(ctx context.Context, start, end int64) (from int64, err error) {
	const ofEventTime = 10_000
	if l.sink.config.Timestamps == EventTime {
		return max(start, end-ofEventTime), nil
	}
	since := l.sink.recall.saved.Time.Add(-skew).UnixMilli()
	err = l.until(ctx, "read back", func() (err error) {
		from, err = l.cluster.offset(ctx, l.topic, l.partition, since)
		return err
	})
	if err == nil && from < 0 {
		from = end // nothing is as late
	}
	return from, err
}

// boundsBehind are the two ends of the lane's log, which is known to have reached the saved offset. A log that ends before it for longer is another one: the
// topic was made anew, or has lost records.
func (l *lane) boundsBehind(ctx context.Context, r *readback) (start, end int64, err error) {
	for {
		start, end, err = l.bounds(ctx)
		switch late := time.Now().After(r.deadline); {
		case err != nil || end >= r.saved.offset || late && r.final:
			return start, end, err
		case late:
			return 0, 0, fmt.Errorf("%w: the log of %s ends at %d, and had come to %d", errImpatient, l.name, end, r.saved.offset)
		}
		if ratelimit.Sleep(ctx, 100*time.Millisecond) != nil {
			return 0, 0, errCallerGone
		}
		_, _ = l.cluster.refresh(ctx, l.topic) // what it can't tell, bounds will
	}
}

// readLeft reads the partition before the lane's first batch, since Recall could not. What it finds was added already, perhaps: the lane knows it, too.
func (l *lane) readLeft(ctx context.Context) error {
	if l.left == nil {
		l.left = &readback{saved: l.sink.recall.saved.place(l.topic, l.partition), deadline: time.Now().Add(deposed), final: true}
	}
	heir, err := l.recall(ctx, l.left, func(id string) {
		l.know(id)
		l.sink.recall.found(id)
	})
	switch {
	case unreadable(err):
		l.sink.warnUnreadable(l.topic, err)
	case err != nil:
		return err
	default:
		l.sink.log.Info("read back a partition that could not be read at the start", "lane", l.name, "messages", len(l.known))
	}
	l.left = nil
	l.sink.recall.done(l.topic, l.partition, heir)
	return nil
}

// messageID is the id of a record that this sink has sent, "" for another.
func (s *Sink) messageID(r *record) string {
	if r.sink != s.config.Name {
		return ""
	}
	id := r.id
	if id == "" && r.informer != "" {
		id = structuredID(r.value)
	}
	if id == "" {
		return ""
	}
	return r.informer + "/" + id
}

// structuredID is the id of an event in JSON, of which the beginning is known; "" for none.
func structuredID(value []byte) string {
	in := jsontext.NewDecoder(bytes.NewReader(value))
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return ""
	}
	for {
		name, err := in.ReadToken()
		if err != nil || name.Kind() != '"' {
			return ""
		}
		if name.String() != "id" {
			if in.SkipValue() != nil {
				return ""
			}
			continue
		}
		if id, err := in.ReadToken(); err == nil && id.Kind() == '"' {
			return id.String()
		}
		return ""
	}
}

// warnDamaged tells of a batch that should be this sink's and can't be read. Whoever may write to the
// topic can make many: the log gets one line for each lane in a while.
func (s *Sink) warnDamaged(lane string, b *logBatch, err error) {
	s.metrics.damaged.Inc()
	s.recall.mu.Lock()
	again := time.Since(s.recall.warned) < warnEvery
	if !again {
		s.recall.warned = time.Now()
	}
	s.recall.mu.Unlock()
	if !again {
		s.log.Warn("a batch can't be read back, and is taken for another producer's; if it is this sink's, its events are sent again, with the same ids",
			"lane", lane, "offset", b.offset, "producer_id", b.producer, "err", err)
	}
}
