package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

// deadLetterToken stands where events have a field. event.AppendSubjectToken never returns a token
// that begins with "_" for a Kubernetes name, so no event has a dead letter's subject.
const deadLetterToken = "_deadletter"

// parseSubject reads a subject template and checks that it produces valid subjects whatever the
// fields are.
func parseSubject(field, text string) (*event.Template, error) {
	t, err := event.ParseTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	for token := range strings.SplitSeq(t.Pattern("x", nil, event.AppendSubjectToken), ".") {
		if token == "" {
			return nil, fmt.Errorf("%s %q: has an empty token", field, text)
		}
		if strings.ContainsAny(token, " \t\r\n*>") {
			return nil, fmt.Errorf("%s %q: white space and the wildcards * and > are not allowed",
				field, text)
		}
	}
	if strings.HasPrefix(text, "$") || strings.HasPrefix(text, "_") {
		return nil, fmt.Errorf("%s %q: subjects that begin with $ or _ belong to the server", field,
			text)
	}
	return t, nil
}

// DefaultDeadLetter puts dead letters below the constant beginning of the subject, so that the
// stream holds them too; with several streams, each its own.
func DefaultDeadLetter(subject, stream string) string {
	var constant []string
	for token := range strings.SplitSeq(subject, ".") {
		if strings.Contains(strings.ReplaceAll(token, "{cluster}", ""), "{") {
			break
		}
		constant = append(constant, token)
	}
	token := deadLetterToken
	if len(constant) == 0 { // a subject may not begin with "_"
		token = "deadletter"
	}
	constant = append(constant, token, "{resource}", "{op}")
	if name, err := event.ParseTemplate(stream); err == nil {
		for _, field := range name.Fields() {
			if field = "{" + field + "}"; !slices.Contains(constant, field) {
				constant = append(constant, field)
			}
		}
	}
	return strings.Join(constant, ".")
}

// deriveSubjects sets the stream's subjects, and checks that they cover what will be published.
func (c *Options) deriveSubjects(subject, deadLetter *event.Template) error {
	if strings.Contains(c.Subject, "{cluster}") && c.Cluster == "" {
		return fmt.Errorf("cluster is not set, but subject %q names {cluster}", c.Subject)
	}
	if c.severalStreams() {
		return c.checkStreamTemplate(subject, deadLetter)
	}
	published := c.published(subject, deadLetter, nil)
	if len(c.Stream.Subjects) > 0 {
		if missing := uncovered(c.Stream.Subjects, published); len(missing) > 0 {
			return fmt.Errorf("stream.subjects %v do not cover %v, which will be published: "+
				"add them", c.Stream.Subjects, missing)
		}
		return nil
	}
	constant := constantPrefix(published[0])
	if constant == "" {
		return fmt.Errorf("subject %q begins with a field, so the stream would hold every "+
			"subject of the account: set stream.subjects, or begin with a constant", c.Subject)
	}
	c.Stream.Subjects = []string{constant}
	c.Stream.Subjects = append(c.Stream.Subjects, uncovered(c.Stream.Subjects, published)...)
	return nil
}

// published returns the subjects, with wildcards, of all events with some values known.
func (c *Options) published(subject, deadLetter *event.Template, known map[string]string) []string {
	subjects := []string{c.pattern(subject, known)}
	if deadLetter != nil {
		subjects = append(subjects, c.pattern(deadLetter, known))
	}
	if c.Fence != nil {
		subjects = append(subjects, c.fencePattern(known))
	}
	return subjects
}

// pattern returns the template as a subject with wildcards. A token with a field in it can only be
// matched as a whole.
func (c *Options) pattern(t *event.Template, known map[string]string) string {
	all := map[string]string{"cluster": c.Cluster}
	maps.Copy(all, known)
	token := event.AppendSubjectToken
	if c.Mode == KV {
		token = event.AppendKeyToken
	}
	tokens := strings.Split(t.Pattern("*", all, token), ".")
	for i, token := range tokens {
		if strings.Contains(token, "*") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// pattern is a subject with wildcards for single tokens, in its tokens.
type pattern []string

// patterns returns those of the templates, without those that are nil.
func (c *Options) patterns(templates ...*event.Template) (list []pattern) {
	for _, t := range templates {
		if t != nil {
			list = append(list, strings.Split(c.pattern(t, nil), "."))
		}
	}
	return list
}

// matches reports whether a subject is one of the pattern's.
func (p pattern) matches(subject string) bool {
	i := 0
	for token := range strings.SplitSeq(subject, ".") {
		if i >= len(p) || p[i] != "*" && p[i] != token {
			return false
		}
		i++
	}
	return i == len(p)
}

// publishes reports whether a message on a subject can be the sink's own.
func (s *Sink) publishes(subject string) bool {
	if prefix := s.events.prefix; prefix != "" {
		return strings.HasPrefix(subject, prefix) &&
			!strings.HasPrefix(subject, prefix+fenceToken+".")
	}
	return slices.ContainsFunc(s.ownSubjects, func(p pattern) bool { return p.matches(subject) })
}

// constantPrefix covers everything below the tokens before the first wildcard; "" when there are
// none.
func constantPrefix(pattern string) string {
	before, _, wild := strings.Cut(pattern, "*")
	if !wild || before == "" {
		return before
	}
	return before + ">"
}

// uncovered returns the patterns that no subject covers.
func uncovered(subjects, patterns []string) (missing []string) {
	for _, pattern := range patterns {
		covered := false
		for _, subject := range subjects {
			covered = covered || covers(subject, pattern)
		}
		if !covered {
			missing = append(missing, pattern)
		}
	}
	return missing
}

// covers reports whether every subject that matches pattern matches subject too.
func covers(subject, pattern string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range have {
		switch {
		case i >= len(want):
			return false
		case token == ">":
			return true
		case want[i] == ">":
			return false
		case token != "*" && token != want[i]:
			return false
		}
	}
	return len(have) == len(want)
}

// stream is what the sink knows of a stream that it publishes to.
type stream struct {
	name       string
	created    time.Time // distinguishes it from another of the same name
	maxMsgSize *sinks.SizeLimit
	replicas   int
	fence      *fence        // nil for none; set before the stream is added
	duplicates time.Duration // how long it remembers ids
	// wanted and fields are how it is made again when it is missing.
	wanted    Stream
	fields    map[string]string
	seen      jetstream.StreamState // when it was last inspected; owned by Inspect
	allowsTTL bool                  // a message may say when it is removed
	last      atomic.Uint64         // the highest sequence that is known to be used
	doubtful  atomic.Bool           // last may be wrong: it is read again before the next call
}

// reached records that the stream has a message under a sequence.
func (st *stream) reached(sequence uint64) {
	for {
		last := st.last.Load()
		if sequence <= last || st.last.CompareAndSwap(last, sequence) {
			return
		}
	}
}

// streams are those that the sink uses: the one of its configuration, or with a template those of
// the events so far.
type streams struct {
	owner *sinks.Owner           // the sink, as Env.Owners knows it
	only  atomic.Pointer[stream] // the first that was looked up
	// unmanaged is the limit of streams that the sink does not look up.
	unmanaged sinks.SizeLimit

	losses sinks.Losses

	mu      sync.RWMutex
	byName  map[string]*stream // guarded by mu
	missing map[string]error   // guarded by mu: why streams that are missing were not made
}

func (ss *streams) get(name []byte) *stream {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return ss.byName[string(name)]
}

// add adds a stream, unless another call was faster. It takes the place of another one of its name.
func (ss *streams) add(st *stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.missing, st.name)
	before := ss.byName[st.name]
	if before != nil && before.created.Equal(st.created) {
		return
	}
	ss.byName[st.name] = st
	ss.only.CompareAndSwap(before, st)
}

// setMissing records why a stream that is missing is not made; nil for one that is there.
func (ss *streams) setMissing(name string, why error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.missing == nil {
		ss.missing = map[string]error{}
	}
	if ss.missing[name] = why; why == nil {
		delete(ss.missing, name)
	}
}

// firstMissing returns why the first stream that is missing is not made; nil for none.
func (ss *streams) firstMissing() error {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(ss.missing)) {
		return ss.missing[name]
	}
	return nil
}

// clear is for a connection that was closed.
func (ss *streams) clear() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.byName, ss.missing = map[string]*stream{}, nil
	ss.only.Store(nil)
}

// all returns the streams by name.
func (ss *streams) all() []*stream {
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	return slices.SortedFunc(maps.Values(ss.byName),
		func(a, b *stream) int { return strings.Compare(a.name, b.name) })
}

// severalStreams reports whether the stream's name is a template.
func (c *Options) severalStreams() bool { return strings.Contains(c.Stream.Name, "{") }

// checkStreamTemplate checks that an object's events always go to one stream, and that no two
// streams have the same subjects.
func (c *Options) checkStreamTemplate(subject, deadLetter *event.Template) error {
	name, err := event.ParseTemplate(c.Stream.Name)
	if err != nil {
		return nil // Stream.validate reports it
	}
	var problems []error
	if len(c.Stream.Subjects) > 0 {
		problems = append(problems, errors.New("stream.subjects: with fields in stream.name the "+
			"subjects follow from subject; leave them out"))
	}
	for _, field := range name.Fields() {
		if field == "op" || field == "type" || field == "version" {
			problems = append(problems, fmt.Errorf("stream.name %q: {%s} changes during an "+
				"object's life, and its order would be lost between streams", c.Stream.Name, field))
		}
		for key, template := range map[string]*event.Template{
			"subject":    subject,
			"deadLetter": deadLetter,
		} {
			if template != nil && !slices.Contains(strings.Split(template.String(), "."), "{"+
				field+"}") {
				problems = append(problems, fmt.Errorf("%s %q: needs {%s} as a token of its own, "+
					"which stream.name has, to distinguish the streams", key, template, field))
			}
		}
	}
	return errors.Join(problems...)
}

// appendStream appends the name of an event's stream.
func (s *Sink) appendStream(dst []byte, e *event.Event) []byte {
	return s.streamName.Append(dst, e, event.AppendSubjectToken)
}

// streamOf returns the stream of an event, nil when it is not looked up yet or not managed.
func (s *Sink) streamOf(e *event.Event) *stream {
	if !s.several {
		return s.streams.only.Load()
	}
	return s.streams.get(s.appendStream(nil, e))
}

// adoptStream makes the sink publish to a stream that was found: no other sink of the process may
// be in its way, and no former leader.
func (s *Sink) adoptStream(
	ctx context.Context, conn *nats.Conn, st *stream, known map[string]string,
) error {
	other, informer := s.cfg.Owners.Claim(st.name, st.created, s.streams.owner)
	if other != "" {
		return operatorError("stream %s is that of sink %s too, and informer %s feeds both: the stream "+
			"takes each event once, and would drop what the other sink has stored. Set "+
			"nats.stream.name to a stream of its own, and nats.subject to subjects that do not "+
			"overlap with those of %s", st.name, other, informer, other)
	}
	if err := s.acquireFence(ctx, conn, st, known); err != nil {
		return err
	}
	st.fields = known
	s.streams.add(st)
	return nil
}

// resolveStream looks up the stream of an event, and creates it where the configuration says so.
func (s *Sink) resolveStream(ctx context.Context, e *event.Event) error {
	if s.cfg.Mode == Core || s.cfg.Stream.Manage == Off || !s.several || s.streamOf(e) != nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return stopped(err)
	}
	if s.conn == nil {
		return classified(ErrNotOpen)
	}
	wanted := s.cfg.Stream
	wanted.Name = string(s.appendStream(nil, e))
	if len(s.streams.all()) >= wanted.MaxStreams {
		return &sinks.Error{
			Class: sinks.Refused,
			Err: fmt.Errorf("stream %q: events go to %d streams already; name streams by fields "+
				"with fewer values, or raise stream.maxStreams", wanted.Name, wanted.MaxStreams),
		}
	}
	wanted.Subjects = s.cfg.published(s.events.subject, s.dead.subject, s.streamName.Values(e))
	st, err := s.ensureStream(ctx, s.conn, wanted)
	if err == nil {
		err = s.adoptStream(ctx, s.conn, st, s.streamName.Values(e))
	}
	if err == nil {
		return nil
	}
	// The operator can fix it while the bridge runs: the object's events wait, they are not
	// refused.
	if err = s.unanswered(err); sinks.Classify(err) == sinks.Refused {
		return &sinks.Error{Class: sinks.Retry, Err: err}
	}
	return err
}
