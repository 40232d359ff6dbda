package nats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Headers that the server checks before it stores a message. The client library has no name for the
// second.
const (
	expectedSequenceHeader = "Nats-Expected-Last-Subject-Sequence"
	expectedSubjectHeader  = "Nats-Expected-Last-Subject-Sequence-Subject"
)

// fenceToken stands where events have a field, like deadLetterToken.
const fenceToken = "_fence"

// fenceSubjectCount is how many subjects the fence of a replicated stream has. There the server
// accepts one message at a time that expects a sequence of the same subject. So each message in
// flight names a subject of its own. A stream with one replica needs only one.
const fenceSubjectCount = 256

// fence of a stream.
type fence struct {
	prefix   string // of the subjects' names, with the dot
	subjects []fenceSubject
	// indices in subjects; nil where any number of messages may name the same
	free chan int
	busy *semaphore.Weighted
	// lost: the server has refused a message because of the fence. The next call finds out why.
	lost atomic.Bool
}

// fenceSubject is one subject of a fence and the sequence of this process's message there.
type fenceSubject struct {
	name     string
	sequence atomic.Pointer[string]
}

func newFence(prefix string, replicas int) *fence {
	f := &fence{prefix: prefix, subjects: make([]fenceSubject, 1), busy: semaphore.NewWeighted(1)}
	if replicas > 1 {
		f.subjects, f.free = make([]fenceSubject, fenceSubjectCount), make(chan int,
			fenceSubjectCount)
	}
	for i := range f.subjects {
		f.subjects[i].name = prefix + strconv.Itoa(i)
		if f.free != nil {
			f.free <- i
		}
	}
	return f
}

// reserve returns the index of the subject that a message names.
func (f *fence) reserve(ctx context.Context) (int, error) {
	if f.free == nil {
		return 0, nil
	}
	select {
	case i := <-f.free:
		return i, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// release returns a subject. The one that was released first is reserved first: the server may need
// a moment more with it.
func (f *fence) release(i int) {
	if f.free != nil {
		f.free <- i
	}
}

// fenceTemplate is the beginning of the fence's subjects, for a fence of some name.
func (c *Options) fenceTemplate(name string) (*event.Template, error) {
	if c.Mode == KV {
		return event.ParseTemplate(bucketSubject + c.Bucket + "." + fenceToken + "." +
			string(event.AppendKeyToken(nil, name)))
	}
	base := strings.Split(DefaultDeadLetter(c.Subject, c.Stream.Name), ".")
	tokens := []string{}
	for _, token := range base {
		switch token {
		case deadLetterToken:
			tokens = append(tokens, fenceToken)
		case strings.TrimPrefix(deadLetterToken, "_"):
			tokens = append(tokens, strings.TrimPrefix(fenceToken, "_"))
		case "{resource}", "{op}":
			if strings.Contains(c.Stream.Name, token) {
				tokens = append(tokens, token)
			}
		default:
			tokens = append(tokens, token)
		}
	}
	return parseSubject("fence", strings.Join(append(tokens, asToken(name)), "."))
}

func asToken(name string) string {
	return strings.NewReplacer(".", "_", " ", "_", "*", "_", ">", "_").Replace(name)
}

// fencePattern covers the subjects of the fences of all sinks, of a stream whose fields are known:
// a stream accepts those of sinks that are added later.
func (c *Options) fencePattern(known map[string]string) string {
	t, err := c.fenceTemplate(c.Fence.Name)
	if err != nil {
		return "" // it consists of a template that was checked
	}
	return c.pattern(t, known) + ".*"
}

// acquireFence takes the fence of a stream, so that no earlier process stores anything in the
// stream from now on.
func (s *Sink) acquireFence(
	ctx context.Context, conn *nats.Conn, st *stream, known map[string]string,
) error {
	if s.cfg.Fence == nil {
		return nil
	}
	f := newFence(strings.TrimSuffix(s.cfg.fencePattern(known), "*")+asToken(s.cfg.Name)+
		"_", st.replicas)
	if err := s.storeFence(ctx, conn, st, f); err != nil {
		return err
	}
	heeded, err := s.supportsFence(ctx, conn, f)
	if err != nil {
		return fmt.Errorf("try the fence: %w", err)
	}
	if !heeded {
		s.log.Warn("the server does not know the header "+expectedSubjectHeader+
			": only the lease keeps a replica that was paused from publishing", "stream", st.name)
		return nil
	}
	st.fence = f
	return nil
}

// storeFence stores messages on all subjects of a fence.
func (s *Sink) storeFence(ctx context.Context, conn *nats.Conn, st *stream, f *fence) error {
	js, err := s.jetStream(conn)
	if err != nil {
		return err
	}
	// again when another process was faster; Confirm reports whether that is the successor
	for attempt := 0; ; attempt++ {
		before, err := s.readFence(ctx, js, st, f)
		if err == nil {
			err = s.cfg.Fence.Confirm(ctx)
		}
		if err == nil {
			err = s.writeFence(ctx, js, f, before)
		}
		if !isWrongLast(err) {
			return err
		}
		if err := s.pauseStoreFence(ctx, attempt); err != nil {
			return err
		}
	}
}

// pauseStoreFence waits before the fence is read again: another process that stores messages there
// without end must not make this one ask the API server without a pause. At most 4 rounds a second,
// in the end one in 5 s.
func (s *Sink) pauseStoreFence(ctx context.Context, attempt int) error {
	const first, longest = 250 * time.Millisecond, 5 * time.Second
	d := min(longest, first<<min(attempt, 10))
	s.log.Warn("another process has written to the fence; reading it again", "attempt", attempt+1)
	return ratelimit.Sleep(ctx, d+rand.N(d/2))
}

// isWrongLast reports whether a message was refused because another one came before it.
func isWrongLast(err error) bool {
	code := codeOf(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence ||
		code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// maxFenceRequests is how many requests about fence subjects run at once.
const maxFenceRequests = 32

// readFence returns the sequences of the last messages, 0 for none.
func (s *Sink) readFence(
	ctx context.Context, js jetstream.JetStream, st *stream, f *fence,
) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Timeout)
	defer cancel()
	found, err := js.Stream(ctx, st.name)
	if err != nil {
		return nil, fmt.Errorf("read the fence: %w", err)
	}
	sequences := make([]uint64, len(f.subjects))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxFenceRequests)
	for i := range f.subjects {
		g.Go(func() (err error) {
			defer sinks.RecoverAnswer(&err)
			m, err := found.GetLastMsgForSubject(ctx, f.subjects[i].name)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read the fence: %w", err)
			}
			sequences[i] = m.Sequence
			return nil
		})
	}
	return sequences, g.Wait()
}

// writeFence stores a message on each subject, if its last one is still the one that was read.
func (s *Sink) writeFence(
	ctx context.Context, js jetstream.JetStream, f *fence, before []uint64,
) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.Timeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxFenceRequests)
	for i := range f.subjects {
		g.Go(func() (err error) {
			defer sinks.RecoverAnswer(&err)
			ack, err := js.PublishMsg(ctx, s.fenceMessage(f.subjects[i].name),
				jetstream.WithExpectLastSequencePerSubject(before[i]))
			if err != nil {
				return fmt.Errorf("take the fence: %w", err)
			}
			f.subjects[i].sequence.Store(new(strconv.FormatUint(ack.Sequence, 10)))
			return nil
		})
	}
	return g.Wait()
}

// fenceMessage is what is stored on a fence. In a bucket no client takes it for a key.
func (s *Sink) fenceMessage(subject string) *nats.Msg {
	m := &nats.Msg{Subject: subject}
	if s.cfg.Mode == KV {
		m.Header = nats.Header{operationHeader: []string{operationDelete}}
	}
	return m
}

// supportsFence reports whether the server knows the header that names the fence: then it refuses a
// message that expects something of an unused subject. A server that does not know it compares with
// the message's own subject, and stores it.
func (s *Sink) supportsFence(ctx context.Context, conn *nats.Conn, f *fence) (bool, error) {
	js, err := s.jetStream(conn)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	m := &nats.Msg{Subject: f.subjects[0].name, Header: nats.Header{}}
	m.Header.Set(expectedSequenceHeader, *f.subjects[0].sequence.Load())
	m.Header.Set(expectedSubjectHeader, f.prefix+"none")
	_, err = js.PublishMsg(ctx, m)
	if codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequence {
		return true, nil
	}
	return false, err
}

// setFenceHeaders has a message name a subject of its stream's fence, which is reserved until the
// call ends.
func (s *Sink) setFenceHeaders(ctx context.Context, c *call, enc *encoder, st *stream) error {
	if st == nil || st.fence == nil {
		return nil
	}
	i, err := st.fence.reserve(ctx)
	if err != nil {
		return err
	}
	c.fenceSubjects = append(c.fenceSubjects, reservedSubject{st.fence, i})
	enc.set(expectedSequenceHeader, *st.fence.subjects[i].sequence.Load())
	enc.set(expectedSubjectHeader, st.fence.subjects[i].name)
	return nil
}

// reservedSubject is a fence subject that a message of a call names.
type reservedSubject struct {
	fence *fence
	index int
}

// classifyFenced classifies the answers of a server that has found another message on the fence
// than expected: nothing is wrong with the event.
func (s *Sink) classifyFenced(batch []*sinks.Message) {
	for _, m := range batch {
		switch codeOf(m.Err) {
		case jetstream.JSErrCodeStreamWrongLastSequence:
			st := s.streamOf(m.Event)
			// no message has named the fence: the answer is not the server's
			if st == nil || st.fence == nil {
				m.Err = &sinks.Error{Class: sinks.Retry, Err: m.Err}
				continue
			}
			st.fence.lost.Store(true)
			m.Err = &sinks.Error{Class: sinks.Reconnect, Err: fmt.Errorf("fenced: %w", m.Err)}
		// another message of this subject is in flight in the server
		case jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			m.Err = &sinks.Error{Class: sinks.Retry, Err: m.Err}
		default:
		}
	}
}

// reacquireFences takes the fences again that the streams of the batch have lost because the stream
// has dropped the messages there for their age. When another process has taken them, Confirm fails,
// and nothing is sent.
func (s *Sink) reacquireFences(ctx context.Context, batch []*sinks.Message) error {
	if s.cfg.Fence == nil {
		return nil
	}
	for _, m := range batch {
		st := s.streamOf(m.Event)
		if st == nil || st.fence == nil || !st.fence.lost.Load() {
			continue
		}
		if err := s.reacquireFence(ctx, st); err != nil {
			return &sinks.Error{Class: sinks.Reconnect, Err: err}
		}
	}
	return nil
}

func (s *Sink) reacquireFence(ctx context.Context, st *stream) (err error) {
	defer sinks.RecoverAnswer(&err)
	f := st.fence
	if err := f.busy.Acquire(ctx, 1); err != nil {
		return err
	}
	defer f.busy.Release(1)
	if !f.lost.Load() {
		return nil
	}
	if err := s.storeFence(ctx, s.conn, st, f); err != nil {
		return err
	}
	f.lost.Store(false)
	s.log.Info("the fence was taken again: the stream had dropped it", "stream", st.name)
	return nil
}

// fencedLimits returns the limits of calls, so that there are fence subjects for all of them
// together.
func (s *Sink) fencedLimits() sinks.Limits {
	l := s.cfg.Limits
	if st := s.streams.only.Load(); s.cfg.Fence != nil && (s.several || st != nil &&
		st.fence != nil && st.fence.free != nil) {
		l.Messages = max(min(l.Messages, fenceSubjectCount/l.Concurrency), 1)
	}
	return l
}

// releaseFence releases the fence subjects of a call.
func (c *call) releaseFence() {
	for _, t := range c.fenceSubjects {
		t.fence.release(t.index)
	}
	c.fenceSubjects = nil
}
