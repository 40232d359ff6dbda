package nats

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// A key that somebody else deletes or replaces would stay so until its object changes. So a bucket
// is compared with the cluster from time to time: the sink reads the headers of all keys and has
// all objects sent again (sinks.Unverified). It stores those whose key is not as it must be.

const (
	// compareEvery is how often a bucket is compared. That reads about 1 KB of each key.
	compareEvery = time.Hour
	// suspectEvery is how often at most it is compared because of a sign that keys were changed. A
	// sign may be wrong: the server removes old markers of deleted objects.
	suspectEvery = sinks.RoundTime
	// comparedFor is how long what was read is used.
	comparedFor = sinks.RoundTime
)

// rows is what a bucket has of each object: as it was read for a comparison, and written by this
// process since.
type rows struct {
	mu    sync.Mutex
	round sinks.Round       // guarded by mu: of the comparison; zero without one
	byKey map[uint64]uint64 // guarded by mu: hashes of uid and version by those of keys

	// Owned by Inspect.
	began   time.Time    // of the last comparison, or the first look
	suspect time.Time    // of the last comparison because of a sign
	reading sinks.Round  // of the comparison that reads keys
	left    *streamRange // what it has yet to read; nil when no comparison reads
	looked  uint64       // the sequence of the last message that was looked at

	repairs ratelimit.LogThrottle
}

var rowSeed = maphash.MakeSeed()

func rowHash(parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(rowSeed)
	for _, part := range parts {
		_, _ = h.WriteString(part) // never fails
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}

// compare begins a comparison of a bucket when one is due, and continues to read its keys. It
// returns that objects are to be sent when all are read.
func (s *Sink) compare(ctx context.Context, st *stream, info *jetstream.StreamInfo) []sinks.Loss {
	r, now := &s.bucket.rows, time.Now()
	if r.began.IsZero() {
		r.began = now
	}
	isOver := now.Sub(r.began) >= comparedFor
	switch {
	case r.left != nil:
	case now.Sub(r.began) >= compareEvery:
		r.begin(s, info)
	case (isOver || r.suspect.IsZero()) && now.Sub(r.suspect) >= suspectEvery && s.isSuspect(ctx, st, info):
		r.suspect = now
		r.begin(s, info)
	default:
		if isOver {
			r.clear()
		}
		return nil
	}
	js, err := s.jetStream(s.conn)
	if err == nil && r.left.first <= r.left.last && info.State.Msgs > 0 {
		err = s.readRange(ctx, js, *r.left, r.visit)
	}
	if err != nil {
		return nil // the rest is read at the next look
	}
	r.left = nil
	return []sinks.Loss{{Destination: st.name, Reason: sinks.Unverified, Round: r.reading.Number()}}
}

// isSuspect reports whether there is a sign that somebody else has changed keys: the bucket has
// fewer messages than before, or the last one is not of a bridge. One that this process has stored
// a moment ago may not be acknowledged yet.
func (s *Sink) isSuspect(ctx context.Context, st *stream, info *jetstream.StreamInfo) bool {
	if info.State.Msgs < st.seen.Msgs {
		return true
	}
	last := info.State.LastSeq
	if last != st.seen.LastSeq || last <= st.last.Load() || last == s.bucket.rows.looked {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	js, err := s.jetStream(s.conn)
	if err != nil {
		return false
	}
	found, err := js.Stream(ctx, st.name)
	if err != nil {
		return false
	}
	m, err := found.GetMsg(ctx, last)
	if err != nil {
		return false
	}
	s.bucket.rows.looked = last
	return s.publishes(m.Subject) && headerValue(m.Header, headerPrefix+"id") == ""
}

func (r *rows) begin(s *Sink, info *jetstream.StreamInfo) {
	r.began = time.Now()
	r.reading = sinks.NewRound(r.began)
	r.left = &streamRange{
		stream: info.Config.Name, subject: s.cfg.pattern(s.events.subject, nil),
		first: max(info.State.FirstSeq, 1), last: info.State.LastSeq,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round, r.byKey = r.reading, map[uint64]uint64{}
}

// clear ends the use of what was read.
func (r *rows) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round, r.byKey = sinks.Round{}, nil
}

// visit takes a message of the bucket, unless this process has stored a newer one of its key.
func (r *rows) visit(m jetstream.Msg, sequence uint64) {
	r.left.first = sequence + 1
	header := m.Headers()
	if uid := attribute(header, "uid"); uid != "" && isRow(header) {
		r.add(m.Subject(), uid, attribute(header, "resourceversion"), false)
	}
}

// isRow reports whether a message is the state of an object, and no marker of a deleted one.
func isRow(header nats.Header) bool {
	return header.Get(operationHeader) == "" && header.Get(markerHeader) == ""
}

func (r *rows) add(subject, uid, version string, isNewer bool) {
	key := rowHash(subject)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.byKey[key]; r.byKey == nil || known && !isNewer || !known && len(r.byKey) >= maxNewest {
		return
	}
	r.byKey[key] = rowHash(uid, version)
}

// wrote takes what this process has stored.
func (r *rows) wrote(subject string, e *event.Event) {
	switch {
	case e.CompactionKey != "":
	case e.Op == event.Deleted:
		r.add(subject, "", "", true)
	default:
		r.add(subject, e.UID, e.ResourceVersion, true)
	}
}

// has reports whether an event is one of the comparison, and whether its key is as it must be.
func (r *rows) has(subject []byte, e *event.Event) (isCompared, isThere bool) {
	if e.Op != event.Synced {
		return false, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.round.Has(e) {
		return false, false
	}
	return true, r.byKey[rowHash(string(subject))] == rowHash(e.UID, e.ResourceVersion)
}

// active reports whether rows are in use.
func (r *rows) active() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey != nil
}
