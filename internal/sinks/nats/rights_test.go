package nats_test

import (
	"context"
	"errors"
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var log testkit.Buffer
	open := func() (*nats.Sink, error) {
		s := ts.newSink(func(c *nats.Config) {
			c.Auth, c.InboxPrefix = nats.Auth{User: "bridge", Password: "secret"}, "_bridge"
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.ConnectTimeout, c.AckTimeout = 300*time.Millisecond, 300*time.Millisecond
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
	found, err := second.Remembers(ctx, event, func(sinks.Trace) bool { return true })
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
			stream := jetstream.StreamConfig{
				Name: "K8S", Subjects: []string{"k8s.test.>"}, Duplicates: 2 * time.Minute,
			}
			if _, err := ts.jetStream().CreateStream(t.Context(), stream); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run("for "+name+" these are enough", func(t *testing.T) {
			ts := newTestServer(t, restricted(c.rights, "_bridge.>"))
			c.prepare(ts)
			if err := live(t, ts); err != nil {
				t.Error(err)
			}
		})
		for i, right := range c.rights {
			t.Run("for "+name+" what is said without "+right+" names it", func(t *testing.T) {
				fewer := slices.Delete(slices.Clone(c.rights), i, i+1)
				ts := newTestServer(t, restricted(fewer, "_bridge.>"))
				c.prepare(ts)
				wantNamed(t, live(t, ts), strings.TrimSuffix(strings.TrimSuffix(right, ">"), "."))
			})
		}
	}
	t.Run("what is said without the inbox names it", func(t *testing.T) {
		wantNamed(t, live(t, newTestServer(t, restricted(rights, "other.>"))), "_bridge.")
	})
}

func wantNamed(t *testing.T, err error, right string) {
	t.Helper()
	if err == nil || !strings.Contains(strings.ToLower(err.Error()), "permissions violation") ||
		!strings.Contains(err.Error(), right) {
		t.Errorf("%v does not name %s", err, right)
	}
}
