package nats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
)

// What an administrator changes at a stream while the sink runs.

// errNotManaged: the sink does not ask the JetStream API about the stream.
var errNotManaged = errors.New("the stream is not managed (stream.manage: off)")

// lowerLimits looks the limits of streams up again that have refused events for their size. An
// event that does not fit any more is answered Retry: the caller sends it in a smaller form. The
// letters of DeadLetter have smaller forms of their own.
func (s *Sink) lowerLimits(ctx context.Context, batch []*sinks.Message, to route) {
	for _, m := range batch {
		if codeOf(m.Err) != jetstream.JSErrCodeStreamMessageExceedsMaximum {
			continue
		}
		st, size := s.streamOf(m.Event), s.sizeOf(m, to)
		limit := s.limitOf(st, to)
		lowered := limit.Refuse(size, func() (int, error) { return s.readLimit(ctx, st) })
		if lowered {
			s.log.Warn("the stream takes smaller messages than before: larger events are sent in a "+
				"smaller form", "subject", s.subjectOf(m, to), "limit", limit.Load(),
				"refused", size)
		}
		m.Err = &sinks.Error{Class: sinks.Refused, Err: fmt.Errorf("%w: %w", ErrTooLarge, m.Err)}
		if to.idSuffix == "" && s.Fits(m.Event) != nil {
			m.Err = &sinks.Error{Class: sinks.Retry, Err: m.Err}
		}
	}
}

// sizeOf is what the limit of a stream is about: headers and data.
func (s *Sink) sizeOf(m *sinks.Message, to route) int {
	enc := encoders.Get().(*encoder)
	defer enc.release()
	enc.encode(m.Event, to, s.cfg.Encoding, nil)
	return enc.header + len(enc.msg.Data)
}

func (s *Sink) subjectOf(m *sinks.Message, to route) string {
	return string(to.appendSubject(nil, m.Event))
}

// readLimit reads max_msg_size of a stream, 0 for none.
func (s *Sink) readLimit(ctx context.Context, st *stream) (int, error) {
	if st == nil {
		return 0, errNotManaged
	}
	info, err := s.streamInfo(ctx, st)
	if err != nil {
		return 0, err
	}
	return int(max(info.Config.MaxMsgSize, 0)), nil
}

// streamInfo asks the server about a stream.
func (s *Sink) streamInfo(
	ctx context.Context, st *stream, options ...jetstream.StreamInfoOpt,
) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	js, err := s.jetStream(s.conn)
	if err != nil {
		return nil, err
	}
	found, err := js.Stream(ctx, st.name)
	if err != nil {
		return nil, err
	}
	if len(options) == 0 {
		return found.CachedInfo(), nil
	}
	return found.Info(ctx, options...)
}

// Inspect implements sinks.Inspector.
func (s *Sink) Inspect(ctx context.Context) []sinks.Loss {
	if s.conn == nil || !s.conn.IsConnected() {
		return nil
	}
	s.refreshPayload(ctx)
	if s.cfg.Mode != Core {
		s.refreshLimit(ctx, nil)
	}
	var unverified []sinks.Loss
	for _, st := range s.streams.all() {
		unverified = append(unverified, s.inspectStream(ctx, st)...)
		s.refreshLimit(ctx, st)
	}
	return append(unverified, s.streams.losses.Take()...)
}

// inspectStream compares a stream with what is known of it, by its time of creation and its
// sequences. A stream that is missing is made where the configuration says so. An unanswered
// question shows nothing. It returns what of a bucket is to be compared.
func (s *Sink) inspectStream(ctx context.Context, st *stream) (unverified []sinks.Loss) {
	before := st.last.Load() // a later acknowledgement may be in the answer
	var letters []jetstream.StreamInfoOpt
	if s.dead.subject != nil && !st.wanted.bucket {
		letters = append(letters, jetstream.WithSubjectFilter(s.cfg.pattern(s.dead.subject, nil)))
	}
	info, err := s.streamInfo(ctx, st, letters...)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		s.replaceStream(ctx, st)
	case err != nil:
	case !info.Created.Equal(st.created):
		s.replaceStream(ctx, st)
	case info.State.LastSeq < before:
		st.last.Store(info.State.LastSeq)
		s.addLoss(st, sinks.Truncated, before, info.State.LastSeq)
	default:
		// `bridge deadletters` removes what it has sent again.
		if isPurged(st, info) && countLetters(info.State) >= countLetters(st.seen) {
			s.addLoss(st, sinks.Purged, before, info.State.LastSeq)
		} else if st.wanted.bucket {
			unverified = s.compare(ctx, st, info)
		}
		st.seen = info.State
	}
	return unverified
}

// replaceStream takes a stream of the same name in the place of one that is not there any more.
func (s *Sink) replaceStream(ctx context.Context, st *stream) {
	if s.streams.get([]byte(st.name)) != st {
		return // another call was faster
	}
	fresh, err := s.ensureStream(ctx, s.conn, st.wanted)
	if err == nil {
		err = s.adoptStream(ctx, s.conn, fresh, st.fields)
	}
	if err != nil {
		s.streams.setMissing(st.name, s.unanswered(err))
		return
	}
	s.addLoss(st, sinks.Recreated, st.last.Load(), fresh.last.Load())
}

// addLoss reports a loss, unless nothing was acknowledged before.
func (s *Sink) addLoss(st *stream, reason string, before, now uint64) {
	s.bucket.rows.clear()
	if before > 0 {
		s.streams.losses.Add(sinks.Loss{
			Destination: st.name, Reason: reason, Before: before, Now: now,
		})
	}
}

// countLetters returns how many dead letters a stream has: the subjects are those that were asked
// for.
func countLetters(state jetstream.StreamState) (n uint64) {
	for _, of := range state.Subjects {
		n += of
	}
	return n
}

// isPurged reports whether somebody has deleted messages since a stream was last inspected, and not
// its retention: that removes the oldest messages only. A bucket keeps the newest message of each
// key, and has no fewer messages when all are newer.
func isPurged(st *stream, info *jetstream.StreamInfo) bool {
	before, now, keep := st.seen, info.State, info.Config
	isEmpty := now.FirstSeq > before.LastSeq
	switch {
	case before.Msgs == 0 || keep.Retention != jetstream.LimitsPolicy:
		return false
	case st.wanted.bucket:
		return isEmpty && now.Msgs < before.Msgs
	case keep.MaxMsgsPerSubject > 0 || keep.AllowMsgTTL: // retention removes any message
		return isEmpty && now.Msgs == 0 && !mayExpire(info, before.LastTime)
	case now.NumDeleted > before.NumDeleted: // behind the first
		return true
	}
	return now.FirstSeq > before.FirstSeq && !mayExpire(info, before.FirstTime)
}

// mayExpire reports whether the retention of a stream may have removed a message of a time: it is
// old, or the stream is full.
func mayExpire(info *jetstream.StreamInfo, at time.Time) bool {
	keep, now := info.Config, info.State
	return keep.Retention != jetstream.LimitsPolicy ||
		keep.MaxAge > 0 && time.Since(at) >= keep.MaxAge ||
		keep.MaxMsgs > 0 && now.Msgs >= uint64(keep.MaxMsgs) ||
		keep.MaxBytes > 0 && now.Bytes >= uint64(keep.MaxBytes)/2 // the rest may be a large message's
}

// compareSaved reports what a stream has lost while the bridge was down, by the saved position.
func (s *Sink) compareSaved(info *jetstream.StreamInfo, saved *savedPosition) {
	for _, before := range saved.Streams {
		loss := sinks.Loss{Destination: before.Name, Before: before.Last, Now: info.State.LastSeq}
		switch {
		case before.Name != info.Config.Name || before.Last == 0:
			continue
		case !before.Created.Equal(info.Created):
			loss.Reason = sinks.Recreated
		case before.Last > info.State.LastSeq:
			loss.Reason = sinks.Truncated
		case info.State.FirstSeq > before.Last && (s.cfg.Mode == KV || !mayExpire(info, saved.At)):
			loss.Reason = sinks.Purged
		default:
			continue
		}
		s.streams.losses.Add(loss)
	}
}

// refreshLimit looks the limit of a stream up again that events exceed.
func (s *Sink) refreshLimit(ctx context.Context, st *stream) {
	limit := s.limitOf(st, s.events)
	if limit.Refresh(func() (int, error) { return s.readLimit(ctx, st) }) {
		s.log.Info("the stream may take larger messages again", "limit", limit.Load())
	}
}

// payloadLimit is what the sink remembers of max_payload. The server says it when a connection
// begins: one that was lowered ends the connection (see onReport), one that was raised shows in the
// next connection only.
type payloadLimit struct {
	exceeded atomic.Bool // an event was above it
	looked   time.Time   // owned by Inspect
}

// payloadEvery is how often another connection looks whether max_payload was raised.
const payloadEvery = time.Minute

// refreshPayload connects again when events exceed max_payload, and another connection shows a
// higher one.
func (s *Sink) refreshPayload(ctx context.Context) {
	p := &s.reported.payload
	if !p.exceeded.Load() || time.Since(p.looked) < payloadEvery {
		return
	}
	p.looked = time.Now()
	p.exceeded.Store(false)
	if now, err := s.readPayload(ctx); err == nil && now > s.conn.MaxPayload() {
		s.log.Info("the server takes larger messages than before; connecting again", "max_payload", now)
		_ = s.conn.ForceReconnect() // it fails when there is no connection
	}
}

// readPayload reads max_payload over a connection of its own.
func (s *Sink) readPayload(ctx context.Context) (int64, error) {
	servers := s.cfg.servers()
	options, err := s.options(&dialer{ctx: ctx, config: &s.cfg, servers: servers})
	if err != nil {
		return 0, err
	}
	conn, err := nats.Connect(servers.url, append(options, nats.NoReconnect(),
		nats.DisconnectErrHandler(nil), nats.ErrorHandler(nil))...)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.MaxPayload(), nil
}
