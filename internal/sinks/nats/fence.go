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

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/sinks"
)

// Fence keeps out a process that published before this one: it may have been stopped for a while, and know nothing of its successor.
//
// Who begins to publish puts a message on a subject of the stream, the fence. Each of its events says which sequence the last message there must
// have, and the server refuses it when another one has been put there meanwhile: by the successor.
type Fence struct {
	// Name tells the fences of several bridges that share a stream apart: it is a token of the subject. The next one begins with the sink's name: two
	// sinks of one leader in one stream have fences of their own, or each would turn the other away.
	Name string
	// Confirm is nil while this process is the one that may publish. It asks whoever decides that, and does not answer from memory: it is
	// called after the fence was looked at and before it is taken, which only succeeds when nobody took it in between.
	Confirm func(ctx context.Context) error
}

// Headers that the server checks before it stores a message. The client library has no name for the second.
const (
	expectedSequenceHeader = "Nats-Expected-Last-Subject-Sequence"
	expectedSubjectHeader  = "Nats-Expected-Last-Subject-Sequence-Subject"
)

// fenceToken stands where events have a field, as deadLetterToken does.
const fenceToken = "_fence"

// fencePosts is how many subjects the fence of a replicated stream has. There the server takes one message at a time that asks for the same subject:
// so each that is on its way asks for one of its own. A stream with one replica needs only one.
const fencePosts = 256

// fence of a stream.
type fence struct {
	prefix string   // of the posts' subjects, with the dot
	posts  []post   // the subjects
	free   chan int // places in posts; nil where any number of messages may ask for the same
	turn   chan struct{}
	// down: the server has refused a message for it. Who publishes next looks why.
	down atomic.Bool
}

// post is one subject of a fence and the sequence of this process's message there.
type post struct {
	subject  string
	sequence atomic.Pointer[string]
}

func newFence(prefix string, replicas int) *fence {
	f := &fence{prefix: prefix, posts: make([]post, 1), turn: make(chan struct{}, 1)}
	if replicas > 1 {
		f.posts, f.free = make([]post, fencePosts), make(chan int, fencePosts)
	}
	for i := range f.posts {
		f.posts[i].subject = prefix + strconv.Itoa(i)
		if f.free != nil {
			f.free <- i
		}
	}
	return f
}

// take gives the post that a message asks for.
func (f *fence) take(ctx context.Context) (int, error) {
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

// give gives it back. The one that was given back first is taken first: the server may need a moment more with it.
func (f *fence) give(i int) {
	if f.free != nil {
		f.free <- i
	}
}

// fenceTemplate is the beginning of the fence's subjects, for a fence of some name.
func (c *Config) fenceTemplate(name string) (*event.Template, error) {
	base := strings.Split(defaultDeadLetter(c.Subject, c.Stream.Name), ".")
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

// fencePattern are the subjects of the fences of all sinks, of a stream whose fields are known: a stream takes those of sinks to come.
func (c *Config) fencePattern(known map[string]string) string {
	t, err := c.fenceTemplate(c.Fence.Name)
	if err != nil {
		return "" // it is made of a template that was checked
	}
	return c.pattern(t, known) + ".*"
}

// raise takes the fence of a stream, so that nobody who had it before stores anything in the stream from now on.
func (s *Sink) raise(ctx context.Context, conn *nats.Conn, st *stream, known map[string]string) error {
	if s.cfg.Fence == nil {
		return nil
	}
	f := newFence(strings.TrimSuffix(s.cfg.fencePattern(known), "*")+asToken(s.cfg.Sink)+"_", st.replicas)
	if err := s.claimFence(ctx, conn, st, f); err != nil {
		return err
	}
	heeded, err := s.heeds(ctx, conn, f)
	if err != nil {
		return fmt.Errorf("try the fence: %w", err)
	}
	if !heeded {
		s.log.Warn("the server does not know the header "+expectedSubjectHeader+": a replica that was stopped and wakes up is kept from publishing by the lease alone", "stream", st.name)
		return nil
	}
	st.fence = f
	return nil
}

// claimFence puts messages on all posts of a fence.
func (s *Sink) claimFence(ctx context.Context, conn *nats.Conn, st *stream, f *fence) error {
	js, err := s.jetStream(conn)
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ { // again when somebody else was faster; whether that is the successor, Confirm says
		before, err := s.lookAtFence(ctx, js, st, f)
		if err == nil {
			err = s.cfg.Fence.Confirm(ctx)
		}
		if err == nil {
			err = s.putPosts(ctx, js, f, before)
		}
		if !isWrongLast(err) {
			return err
		}
		if err := s.pauseClaim(ctx, attempt); err != nil {
			return err
		}
	}
}

// pauseClaim waits before the fence is looked at again: whoever else posts there without end must not
// have this process ask the API server without a pause. At most 4 rounds a second, in the end one in 5 s.
func (s *Sink) pauseClaim(ctx context.Context, attempt int) error {
	const first, longest = 250 * time.Millisecond, 5 * time.Second
	d := min(longest, first<<min(attempt, 10))
	s.log.Warn("somebody else has posted on the fence; looking again", "attempt", attempt+1)
	return ratelimit.Sleep(ctx, d+rand.N(d/2))
}

// isWrongLast reports whether a message was refused because another one came before it.
func isWrongLast(err error) bool {
	code := codeOf(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence || code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// atOnce is how many requests about posts are under way together.
const atOnce = 32

// lookAtFence gives the sequences of the last messages, 0 for none.
func (s *Sink) lookAtFence(ctx context.Context, js jetstream.JetStream, st *stream, f *fence) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.ConnectTimeout)
	defer cancel()
	found, err := js.Stream(ctx, st.name)
	if err != nil {
		return nil, fmt.Errorf("look at the fence: %w", err)
	}
	sequences := make([]uint64, len(f.posts))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range f.posts {
		g.Go(func() error {
			m, err := found.GetLastMsgForSubject(ctx, f.posts[i].subject)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("look at the fence: %w", err)
			}
			sequences[i] = m.Sequence
			return nil
		})
	}
	return sequences, g.Wait()
}

// putPosts puts a message on each post, if its last one is still the one that was seen.
func (s *Sink) putPosts(ctx context.Context, js jetstream.JetStream, f *fence, before []uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.cfg.ConnectTimeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range f.posts {
		g.Go(func() error {
			ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: f.posts[i].subject}, jetstream.WithExpectLastSequencePerSubject(before[i]))
			if err != nil {
				return fmt.Errorf("take the fence: %w", err)
			}
			f.posts[i].sequence.Store(new(strconv.FormatUint(ack.Sequence, 10)))
			return nil
		})
	}
	return g.Wait()
}

// heeds says whether the server knows the header that names the fence: it then refuses a message that expects something of a subject that nobody
// uses. One that does not know it compares with the message's own subject, and stores it.
func (s *Sink) heeds(ctx context.Context, conn *nats.Conn, f *fence) (bool, error) {
	js, err := s.jetStream(conn)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ConnectTimeout)
	defer cancel()
	m := &nats.Msg{Subject: f.posts[0].subject, Header: nats.Header{}}
	m.Header.Set(expectedSequenceHeader, *f.posts[0].sequence.Load())
	m.Header.Set(expectedSubjectHeader, f.prefix+"none")
	_, err = js.PublishMsg(ctx, m)
	if codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequence {
		return true, nil
	}
	return false, err
}

// guard has a message ask for a post of its stream's fence, until the call ends.
func (s *Sink) guard(ctx context.Context, c *call, enc *encoder, st *stream) error {
	if st == nil || st.fence == nil {
		return nil
	}
	i, err := st.fence.take(ctx)
	if err != nil {
		return err
	}
	c.posts = append(c.posts, takenPost{st.fence, i})
	enc.set(expectedSequenceHeader, *st.fence.posts[i].sequence.Load())
	enc.set(expectedSubjectHeader, st.fence.posts[i].subject)
	return nil
}

// takenPost is a post that a message of a call asks for.
type takenPost struct {
	fence *fence
	post  int
}

// turnedAway sorts the answers of a server that has found another message on the fence than expected: nothing is wrong with the event.
func (s *Sink) turnedAway(batch []*sinks.Message) {
	for _, m := range batch {
		switch codeOf(m.Err) {
		case jetstream.JSErrCodeStreamWrongLastSequence:
			st := s.streamOf(m.Event)
			if st == nil || st.fence == nil { // no message has asked for it: the answer is not the server's
				m.Err = &sinks.Error{Class: sinks.Retry, Err: m.Err}
				continue
			}
			st.fence.down.Store(true)
			m.Err = &sinks.Error{Class: sinks.Reconnect, Err: fmt.Errorf("turned away at the fence: %w", m.Err)}
		case jetstream.JSErrCodeStreamWrongLastSequenceConstant: // the server is not done with the post
			m.Err = &sinks.Error{Class: sinks.Retry, Err: m.Err}
		default:
		}
	}
}

// mend takes the fences again at which messages of the batch's streams were turned away: because the stream has dropped the messages there for
// their age. When another process has taken them, Confirm fails, and nothing is sent.
func (s *Sink) mend(ctx context.Context, batch []*sinks.Message) error {
	if s.cfg.Fence == nil {
		return nil
	}
	for _, m := range batch {
		st := s.streamOf(m.Event)
		if st == nil || st.fence == nil || !st.fence.down.Load() {
			continue
		}
		if err := s.mendFence(ctx, st); err != nil {
			return &sinks.Error{Class: sinks.Reconnect, Err: err}
		}
	}
	return nil
}

func (s *Sink) mendFence(ctx context.Context, st *stream) error {
	f := st.fence
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !f.down.Load() {
		return nil
	}
	if err := s.claimFence(ctx, s.conn, st, f); err != nil {
		return err
	}
	f.down.Store(false)
	s.log.Info("the fence was taken again: the stream had dropped it", "stream", st.name)
	return nil
}

// fencedLimits are the limits of calls, so that all of them together find posts.
func (s *Sink) fencedLimits() sinks.Limits {
	l := s.cfg.Limits
	if st := s.streams.only.Load(); s.cfg.Fence != nil && (s.several || st != nil && st.fence != nil && st.fence.free != nil) {
		l.Messages = max(min(l.Messages, fencePosts/l.Concurrency), 1)
	}
	return l
}

// leave gives the posts of a call back.
func (c *call) leave() {
	for _, t := range c.posts {
		t.fence.give(t.post)
	}
	c.posts = nil
}
