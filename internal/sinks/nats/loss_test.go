package nats_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// TestLoss: what an administrator does to a stream or a bucket while the sink is open is noticed,
// and the sink continues.
func TestLoss(t *testing.T) {
	recreate := func(t *testing.T, js jetstream.JetStream, s jetstream.Stream) {
		config := s.CachedInfo().Config
		testkit.OK(t, js.DeleteStream(t.Context(), config.Name))
		eventually(t, "create", func() error {
			_, err := js.CreateStream(t.Context(), config)
			return err
		})
	}
	deleted := func(t *testing.T, js jetstream.JetStream, s jetstream.Stream) {
		testkit.OK(t, js.DeleteStream(t.Context(), s.CachedInfo().Config.Name))
	}
	purge := func(t *testing.T, _ jetstream.JetStream, s jetstream.Stream) {
		testkit.OK(t, s.Purge(t.Context()))
	}
	for name, c := range map[string]struct {
		do        func(*testing.T, jetstream.JetStream, jetstream.Stream)
		publishes bool // before it is inspected
		want      string
	}{
		"it is deleted":                     {deleted, false, sinks.Recreated},
		"it is recreated":                   {recreate, false, sinks.Recreated},
		"it is recreated, and got an event": {recreate, true, sinks.Recreated},
		"it is purged":                      {purge, false, sinks.Purged},
		"it is purged, and got an event":    {purge, true, sinks.Purged},
	} {
		for kind, change := range map[string]func(*nats.Options){
			"stream": func(*nats.Options) {}, "bucket": inBucket,
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				ts := newTestServer(t)
				sink := ts.openSink(change)
				stream := map[string]string{"stream": "K8S", "bucket": "KV_SHOP"}[kind]
				mustStore(t, sink, ev("a", 1), ev("b", 2), ev("c", 3))
				if found := sink.Inspect(t.Context()); len(found) > 0 {
					t.Fatalf("lost %v", found)
				}
				js := ts.jetStream()
				s, err := js.Stream(t.Context(), stream)
				testkit.OK(t, err)
				c.do(t, js, s)
				if c.publishes {
					storePatiently(t, sink, ev("a", 4))
				}
				var found []sinks.Loss
				await(t, "the loss is noticed", func() bool {
					found = append(found, sink.Inspect(t.Context())...)
					return len(found) > 0
				})
				if len(found) != 1 || found[0].Destination != stream || found[0].Reason != c.want {
					t.Errorf("lost %v, want %s %s", found, stream, c.want)
				}
				storePatiently(t, sink, ev("a", 5))
				if again := sink.Inspect(t.Context()); len(again) > 0 || sink.Blocked() != nil {
					t.Errorf("lost again: %v, blocked: %v", again, sink.Blocked())
				}
			})
		}
	}
}

// A stream whose server continues with an older copy of its disk has lost its end.
func TestRestoredCopy(t *testing.T) {
	ts, store := newTestServer(t), t.TempDir()
	sink := ts.openSink()
	mustStore(t, sink, ev("a", 1))
	ts.stop()
	testkit.OK(t, os.CopyFS(store, os.DirFS(ts.opts.StoreDir)))
	ts.start()
	storePatiently(t, sink, ev("a", 2))
	if found := sink.Inspect(t.Context()); len(found) > 0 {
		t.Fatalf("lost %v", found)
	}
	ts.stop()
	ts.opts.StoreDir = store
	ts.start()
	var found []sinks.Loss
	await(t, "the loss is noticed", func() bool {
		found = sink.Inspect(t.Context())
		return len(found) > 0
	})
	if len(found) != 1 || found[0].Reason != sinks.Truncated || found[0].Before-found[0].Now != 1 {
		t.Errorf("lost %v", found)
	}
}

// Dead letters that `bridge deadletters` removes are no loss.
func TestRemovedLetters(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink()
	mustStore(t, sink, ev("a", 1))
	for version := range 3 {
		testkit.OK(t, sink.DeadLetter(t.Context(), ev("b", version), errors.New("refused"), 1))
	}
	mustStore(t, sink, ev("a", 2))
	sink.Inspect(t.Context())
	s, err := ts.jetStream().Stream(t.Context(), "K8S")
	testkit.OK(t, err)
	for _, sequence := range []uint64{3, 4} {
		testkit.OK(t, s.DeleteMsg(t.Context(), sequence))
		if found := sink.Inspect(t.Context()); len(found) > 0 {
			t.Errorf("lost %v", found)
		}
	}
	testkit.OK(t, s.DeleteMsg(t.Context(), 1))
	if found := sink.Inspect(t.Context()); len(found) != 1 {
		t.Errorf("an event is deleted, and lost is %v", found)
	}
}

// A stream that somebody has to make again is why the sink stores nothing.
func TestMissingStream(t *testing.T) {
	ts := newTestServer(t)
	first := ts.openSink()
	mustStore(t, first, ev("a", 1))
	sink := ts.openSink(func(c *nats.Options) { c.Stream.Manage, c.Name = nats.Verify, "other" })
	js := ts.jetStream()
	s, err := js.Stream(t.Context(), "K8S")
	testkit.OK(t, err)
	config := s.CachedInfo().Config
	testkit.OK(t, js.DeleteStream(t.Context(), "K8S"))
	sink.Inspect(t.Context())
	wantMentions(t, sink.Blocked(), "stream K8S does not exist: create it")
	eventually(t, "create", func() error {
		_, err := js.CreateStream(t.Context(), config)
		return err
	})
	sink.Inspect(t.Context())
	if err := sink.Blocked(); err != nil {
		t.Errorf("it is there, and the sink says %v", err)
	}
}

// What a stream removes by its own settings is no loss.
func TestRetention(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"the number of messages":      func(c *jetstream.StreamConfig) { c.MaxMsgs = 3 },
		"bytes":                       func(c *jetstream.StreamConfig) { c.MaxBytes = 6_000 },
		"age":                         func(c *jetstream.StreamConfig) { c.MaxAge, c.Duplicates = 500*time.Millisecond, 100*time.Millisecond },
		"the messages of one subject": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ts := newTestServer(t)
			sink := ts.openSink()
			ts.updateStream("K8S", change)
			for version := 1; version <= 20; version++ {
				mustStore(t, sink, ev("a", version), ev("b", version))
				if version%5 == 0 {
					time.Sleep(300 * time.Millisecond)
				}
				if found := sink.Inspect(t.Context()); len(found) > 0 {
					t.Fatalf("lost %v", found)
				}
			}
			s, err := ts.jetStream().Stream(t.Context(), "K8S")
			testkit.OK(t, err)
			if s.CachedInfo().State.Msgs > 30 {
				t.Error("nothing was removed")
			}
		})
	}
}

// TestLossWhileDown: what an administrator does while no sink is open is noticed by the next one.
func TestLossWhileDown(t *testing.T) {
	recreate := func(t *testing.T, js jetstream.JetStream, s jetstream.Stream) {
		testkit.OK(t, js.DeleteStream(t.Context(), s.CachedInfo().Config.Name))
		eventually(t, "create", func() error {
			_, err := js.CreateStream(t.Context(), s.CachedInfo().Config)
			return err
		})
	}
	purge := func(t *testing.T, _ jetstream.JetStream, s jetstream.Stream) { testkit.OK(t, s.Purge(t.Context())) }
	purgeFull := func(t *testing.T, js jetstream.JetStream, s jetstream.Stream) {
		config := s.CachedInfo().Config
		config.MaxMsgs = 2
		_, err := js.UpdateStream(t.Context(), config)
		testkit.OK(t, err)
		for range 3 { // another program's
			_, err := js.Publish(t.Context(), "k8s.test.other", nil)
			testkit.OK(t, err)
		}
	}
	for name, c := range map[string]struct {
		do   func(*testing.T, jetstream.JetStream, jetstream.Stream)
		kind string
		want string // "" for nothing
	}{
		"a stream is recreated":                {recreate, "K8S", sinks.Recreated},
		"a bucket is recreated":                {recreate, "KV_SHOP", sinks.Recreated},
		"a stream is purged":                   {purge, "K8S", sinks.Purged},
		"a bucket is purged":                   {purge, "KV_SHOP", sinks.Purged},
		"a stream is full of others' messages": {purgeFull, "K8S", ""},
		"nothing is done to a stream":          {func(*testing.T, jetstream.JetStream, jetstream.Stream) {}, "K8S", ""},
		"nothing is done to a bucket":          {func(*testing.T, jetstream.JetStream, jetstream.Stream) {}, "KV_SHOP", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := map[string]func(*nats.Options){"K8S": func(*nats.Options) {}, "KV_SHOP": inBucket}[c.kind]
			ts := newTestServer(t)
			first := ts.openSink(change)
			mustStore(t, first, ev("a", 1), ev("b", 1))
			from := first.Position()
			testkit.OK(t, first.Close())
			s, err := ts.jetStream().Stream(t.Context(), c.kind)
			testkit.OK(t, err)
			c.do(t, ts.jetStream(), s)
			second := ts.openSink(change)
			recalled(t, second, from)
			found := second.Inspect(t.Context())
			if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0].Reason != c.want) {
				t.Errorf("lost %v, want %q", found, c.want)
			}
		})
	}
}
