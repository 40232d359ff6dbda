package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// Versions before this one had one fence for all sinks of a stream, without a sink's name. A leader of such a version that was paused, and whose
// successor is of this one, is turned away at that fence, and only there: so it is shut, for good, by messages that bear a mark.

// shutHeader marks them.
const shutHeader = "Bridge-Fence"

// shutFormer shuts the fence that a leader of an earlier version may go through. A stream that has none is asked once.
func (s *Sink) shutFormer(ctx context.Context, conn *nats.Conn, st *stream, known map[string]string) error {
	js, err := s.jetStream(conn)
	if err != nil {
		return err
	}
	pattern := s.cfg.fencePattern(known)
	for { // again when somebody else was faster
		open, err := s.openPosts(ctx, js, st, pattern)
		if err != nil || len(open) == 0 {
			return err
		}
		if err := s.cfg.Fence.Confirm(ctx); err != nil {
			return err
		}
		if err := s.shut(ctx, js, open); !isWrongLast(err) {
			return err
		}
		s.log.Info("the fence of an earlier version was shut", "stream", st.name)
	}
}

// openPosts are the posts of a former fence whose last message has no mark, with its sequence.
func (s *Sink) openPosts(ctx context.Context, js jetstream.JetStream, st *stream, pattern string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.ConnectTimeout)
	defer cancel()
	found, err := js.Stream(ctx, st.name)
	if err != nil {
		return nil, fmt.Errorf("look at the fence of an earlier version: %w", err)
	}
	info, err := found.Info(ctx, jetstream.WithSubjectFilter(pattern))
	if err != nil {
		return nil, fmt.Errorf("look at the fence of an earlier version: %w", err)
	}
	open := map[string]uint64{}
	for i := range fencePosts { // of those that there are
		subject := fmt.Sprint(strings.TrimSuffix(pattern, "*"), i)
		if info.State.Subjects[subject] == 0 {
			continue
		}
		m, err := found.GetLastMsgForSubject(ctx, subject)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // dropped for its age
		case err != nil:
			return nil, fmt.Errorf("look at the fence of an earlier version: %w", err)
		case m.Header.Get(shutHeader) == "":
			open[subject] = m.Sequence
		}
	}
	return open, nil
}

// shut puts marked messages on posts, if the last ones are still those that were seen.
func (s *Sink) shut(ctx context.Context, js jetstream.JetStream, open map[string]uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.ConnectTimeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for subject, last := range open {
		g.Go(func() error {
			m := &nats.Msg{Subject: subject, Header: nats.Header{shutHeader: {"shut"}}}
			if _, err := js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(last)); err != nil {
				return fmt.Errorf("shut the fence of an earlier version: %w", err)
			}
			return nil
		})
	}
	return g.Wait()
}

// isWrongLast says whether a message was refused because another one came before it.
func isWrongLast(err error) bool {
	code := codeOf(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence || code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}
