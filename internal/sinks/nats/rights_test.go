package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// What docs/security.md gives to the bridge's user, with a prefix of its own for answers.
var (
	rights = []string{
		"k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.CREATE.K8S", "$JS.API.CONSUMER.>",
		"$JS.API.DIRECT.GET.K8S.>",
	}
	rightsWithoutDirect = []string{
		"k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.CONSUMER.>", "$JS.API.STREAM.MSG.GET.K8S",
	}
)

// More of these, by what is configured.
var (
	rightsOfObjects = []string{
		"$JS.API.STREAM.INFO.OBJ_LARGE", "$JS.API.STREAM.CREATE.OBJ_LARGE",
		"$JS.API.DIRECT.GET.OBJ_LARGE.>", "$O.LARGE.>",
	}
	rightsOfDeadLetters = []string{"dead.>"}
	// A fence of a stream is in that stream.
	rightsOfFences              = []string{"k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.DIRECT.GET.K8S.>"}
	rightsOfFencesWithoutDirect = []string{"k8s.>", "$JS.API.STREAM.INFO.K8S", "$JS.API.STREAM.MSG.GET.K8S"}
)

func restricted(publish []string, inbox string) func(*server.Options) {
	bridge := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: publish},
		Subscribe: &server.SubjectPermission{Allow: []string{inbox}},
	}
	return func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "bridge", Password: "secret", Permissions: bridge}, {Username: "owner", Password: "o"},
		}
		o.NoAuthUser = "owner"
	}
}

// live opens a sink, stores an event, and reads it back as after a crash and as after the loss of
// the state. It returns what went wrong.
func live(t *testing.T, ts *testServer) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var log testkit.Buffer
	open := func() (*nats.Sink, error) {
		s := ts.newSink(func(c *nats.Options) {
			c.Username, c.Password = "bridge", "secret"
			c.InboxPrefix = "_bridge"
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Timeout, c.AckTimeout = 3*time.Second, 3*time.Second
		})
		t.Cleanup(func() { _ = s.Close() })
		return s, s.Open(ctx)
	}
	first, err := open()
	if err != nil {
		return err
	}
	from, event := first.Position(), ev("a", 1)
	if m := call(t, first, event)[0]; m.Err != nil {
		return m.Err
	}
	second, err := open()
	if err != nil {
		return err
	}
	if len(recalled(t, second, from)) != 1 {
		return errors.New("not recalled: " + log.String())
	}
	found, err := second.FindEarlierRun(ctx, event, func(sinks.Trace) bool { return true })
	if err == nil && !found {
		err = errors.New("not remembered")
	}
	return err
}

func TestRights(t *testing.T) {
	for name, c := range map[string]struct {
		rights  []string
		prepare func(*testServer)
	}{
		"a stream that the sink makes": {rights, func(*testServer) {}},
		"a stream of others, without direct reads": {rightsWithoutDirect, func(ts *testServer) {
			streamOf(t, ts, "K8S", "k8s.test.>", false)
		}},
	} {
		try := func(t *testing.T, has []string) error {
			ts := newTestServer(t, restricted(has, "_bridge.>"))
			c.prepare(ts)
			return live(t, ts)
		}
		t.Run("for "+name+" these are enough", func(t *testing.T) {
			t.Parallel()
			wantEnough(t, func() error { return try(t, c.rights) })
		})
		for i, right := range c.rights {
			t.Run("for "+name+" what is said without "+right+" names it", func(t *testing.T) {
				t.Parallel()
				fewer := slices.Delete(slices.Clone(c.rights), i, i+1)
				wantNamed(t, strings.TrimSuffix(strings.TrimSuffix(right, ">"), "."),
					func() error { return try(t, fewer) })
			})
		}
	}
	t.Run("what is said without the inbox names it", func(t *testing.T) {
		t.Parallel()
		wantNamed(t, "_bridge.", func() error {
			return live(t, newTestServer(t, restricted(rights, "other.>")))
		})
	})
}

func wantNamed(t *testing.T, right string, try func() error) {
	t.Helper()
	if err := tried(try, func(err error) bool {
		return err != nil && strings.Contains(err.Error(), right) &&
			strings.Contains(strings.ToLower(err.Error()), "permissions violation")
	}); err != nil {
		t.Errorf("%v does not name %s", err, right)
	}
}

func wantEnough(t *testing.T, try func() error) {
	t.Helper()
	if err := tried(try, func(err error) bool { return err == nil }); err != nil {
		t.Error(err)
	}
}

// tried tries up to three times: on a busy machine what a server says may come after the timeout.
// It returns the last error, wrapped, unless one was as it should be.
func tried(try func() error, isRight func(error) bool) error {
	var err error
	for range 3 {
		if err = try(); isRight(err) {
			return nil
		}
	}
	return fmt.Errorf("three times: %w", err)
}

// asBridge makes a sink of the user that has few rights.
func asBridge(t *testing.T, ts *testServer, change func(*nats.Options)) *nats.Sink {
	s := ts.newSink(func(c *nats.Options) {
		c.Username, c.Password = "bridge", "secret"
		c.InboxPrefix = "_bridge"
		c.Timeout, c.AckTimeout = 2*time.Second, 2*time.Second
		change(c)
	})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// streamOf makes a stream as its owner.
func streamOf(t *testing.T, ts *testServer, name, subjects string, direct bool) {
	t.Helper()
	_, err := ts.jetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{subjects}, Duplicates: 2 * time.Minute, AllowDirect: direct,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRightsOfSettings(t *testing.T) {
	for name, c := range map[string]struct {
		rights  []string // what is taken away
		others  []string // what stays
		prepare func(*testServer)
		change  func(*nats.Options)
		use     func(ctx context.Context, s *nats.Sink) error
	}{
		"objects": {
			rightsOfObjects, rights, func(*testServer) {}, withBucket,
			func(ctx context.Context, s *nats.Sink) error {
				ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
				defer cancel()
				_, err := s.Claim(ctx, ev("a", 1))
				return err
			},
		},
		"dead letters elsewhere": {
			rightsOfDeadLetters, rights, func(*testServer) {},
			func(c *nats.Options) { c.DeadLetterSubject = "dead.{resource}" },
			func(ctx context.Context, s *nats.Sink) error {
				return s.DeadLetter(ctx, ev("a", 1), errors.New("refused"), 1)
			},
		},
		"replicas": {
			rightsOfFences, nil,
			func(ts *testServer) { streamOf(t, ts, "K8S", "k8s.test.>", true) },
			new(office).of(0), storeOne,
		},
		"replicas, in a stream without direct reads": {
			rightsOfFencesWithoutDirect, nil,
			func(ts *testServer) { streamOf(t, ts, "K8S", "k8s.test.>", false) },
			new(office).of(0), storeOne,
		},
	} {
		try := func(t *testing.T, has []string) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			ts := newTestServer(t, restricted(slices.Concat(c.others, has), "_bridge.>"))
			c.prepare(ts)
			s := asBridge(t, ts, c.change)
			if err := s.Open(ctx); err != nil {
				return err
			}
			return c.use(ctx, s)
		}
		t.Run("with "+name+" these are enough", func(t *testing.T) {
			t.Parallel()
			wantEnough(t, func() error { return try(t, c.rights) })
		})
		for i, right := range c.rights {
			t.Run("with "+name+" what is said without "+right+" names it", func(t *testing.T) {
				t.Parallel()
				fewer := slices.Delete(slices.Clone(c.rights), i, i+1)
				wantNamed(t, strings.TrimSuffix(strings.TrimSuffix(right, ">"), "."),
					func() error { return try(t, fewer) })
			})
		}
	}
}

func storeOne(ctx context.Context, s *nats.Sink) error {
	m := &sinks.Message{Event: ev("a", 1)}
	s.Publish(ctx, []*sinks.Message{m})
	return m.Err
}

// A subject to which the user may not publish delays nothing else: its message is answered when the
// server reports it, and the others of its call do not wait for that.
func TestForbiddenSubject(t *testing.T) {
	ts := newTestServer(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "bridge", Password: "secret", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"k8s.*.*.*.*.*.denied.*"}},
		}}, {Username: "owner", Password: "o"}}
		o.NoAuthUser = "owner"
	})
	sink := openOver(t, strings.Replace(ts.url(), "nats://", "nats://bridge:secret@", 1), ackTimeout(time.Minute))
	began := time.Now()
	answers := call(t, sink, ev("a", 1), ev("denied", 1), ev("b", 1))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the call took %v", took)
	}
	if answers[0].Err != nil || answers[2].Err != nil {
		t.Errorf("the others got %v and %v", answers[0].Err, answers[2].Err)
	}
	wantClass(t, answers[1].Err, sinks.Retry)
	wantMentions(t, answers[1].Err, "Permissions Violation for Publish", "denied")
}
