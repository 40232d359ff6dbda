package nats_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

var errTest = errors.New("refused by a test")

func streamConfig(t *testing.T, js jetstream.JetStream, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func TestStreamDefaults(t *testing.T) {
	ts := newTestServer(t)
	ts.openSink()
	c := streamConfig(t, ts.jetStream(), "K8S")
	if c.Storage != jetstream.FileStorage || c.Retention != jetstream.LimitsPolicy ||
		c.Discard != jetstream.DiscardOld || c.Replicas != 1 ||
		c.MaxAge != 168*time.Hour || c.Duplicates != 2*time.Minute ||
		c.Compression != jetstream.S2Compression || c.MaxBytes != -1 || !c.AllowDirect {
		t.Errorf("got %+v", c)
	}
}

func TestCreateStream(t *testing.T) {
	ts := newTestServer(t)
	ts.openSink(func(c *nats.Options) {
		c.Stream = nats.Stream{
			Name: "AUDIT", Subjects: []string{"k8s.>"}, MaxBytes: 1 << 20,
			Storage: "memory", DuplicateWindow: time.Minute, Compression: "none",
			MaxStreams: 1, Manage: nats.Create,
		}
	})
	c := streamConfig(t, ts.jetStream(), "AUDIT")
	if c.Storage != jetstream.MemoryStorage || c.MaxAge != 0 || c.MaxBytes != 1<<20 ||
		c.Duplicates != time.Minute || c.Compression != jetstream.NoCompression ||
		c.Subjects[0] != "k8s.>" {
		t.Errorf("got %+v", c)
	}
}

func TestExistingStream(t *testing.T) {
	sound := jetstream.StreamConfig{
		Name: "K8S", Subjects: []string{"k8s.test.>"},
		Duplicates: 2 * time.Minute,
	}
	for _, c := range []struct {
		name   string
		change func(*jetstream.StreamConfig)
		says   []string // nothing: Open succeeds
	}{
		{"keeps messages for another time", func(c *jetstream.StreamConfig) {
			c.MaxAge,
				c.MaxBytes = time.Hour, 1<<20
		}, nil},
		{
			"holds more subjects",
			func(c *jetstream.StreamConfig) { c.Subjects = []string{"k8s.>"} },
			nil,
		},
		{
			"remembers ids for " +
				"longer", func(c *jetstream.StreamConfig) { c.Duplicates = time.Hour },
			nil,
		},
		{
			"holds other subjects",
			func(c *jetstream.StreamConfig) { c.Subjects = []string{"k8s.test.apps.>"} },
			[]string{"[k8s.test.apps.>] do not cover [k8s.test.>]"},
		},
		{
			"forgets ids earlier", func(c *jetstream.StreamConfig) { c.Duplicates = time.Second },
			[]string{"duplicates window is 1s, wanted at least 2m0s"},
		},
		{
			"is in memory", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
			[]string{"storage is Memory, wanted File"},
		},
		{
			"is a work queue",
			func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
			[]string{"retention is WorkQueue"},
		},
		{
			"follows interest",
			func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
			[]string{"retention is Interest"},
		},
		{
			"acknowledges nothing", func(c *jetstream.StreamConfig) { c.NoAck = true },
			[]string{"no_ack"},
		},
		{"differs twice", func(c *jetstream.StreamConfig) {
			c.Storage,
				c.Duplicates = jetstream.MemoryStorage, time.Second
		}, []string{"storage is", "duplicates window is"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ts := newTestServer(t)
			js := ts.jetStream()
			existing := sound
			c.change(&existing)
			if _, err := js.CreateStream(t.Context(), existing); err != nil {
				t.Fatal(err)
			}
			before := streamConfig(t, js, "K8S")

			sink := ts.newSink()
			err := sink.Open(t.Context())
			defer sink.Close()
			if c.says == nil && err != nil {
				t.Errorf("open: %v", err)
			} else if c.says != nil {
				wantClass(t, err, sinks.Refused)
				wantMentions(t, err, append(c.says, "K8S", "nats stream edit")...)
			}
			after := streamConfig(t, js, "K8S")
			if before.MaxAge != after.MaxAge || before.Duplicates != after.Duplicates ||
				before.Subjects[0] != after.Subjects[0] || before.MaxBytes != after.MaxBytes {
				t.Errorf("the stream was changed from %+v to %+v", before, after)
			}
		})
	}
}

func TestFewerReplicas(t *testing.T) {
	ts := newTestServer(t)
	ts.openSink()
	err := ts.newSink(func(c *nats.Options) { c.Stream.Replicas = 3 }).Open(t.Context())
	wantClass(t, err, sinks.Refused)
	wantMentions(t, err, "replicas are 1, wanted 3")
}

func TestStreamOverlap(t *testing.T) {
	ts := newTestServer(t)
	if _, err := ts.jetStream().CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "OLD", Subjects: []string{"k8s.>"}}); err != nil {
		t.Fatal(err)
	}
	err := ts.newSink().Open(t.Context())
	wantClass(t, err, sinks.Refused)
	wantMentions(t, err, "NATS at nats://127.0.0.1:", "K8S can't be created", "stream OLD takes",
		"stream.name: OLD")
}

func TestVerify(t *testing.T) {
	ts := newTestServer(t)
	verify := func(c *nats.Options) { c.Stream.Manage = nats.Verify }
	err := ts.newSink(verify).Open(t.Context())
	wantClass(t, err, sinks.Refused)
	wantMentions(t, err, "stream K8S does not exist", "k8s.test.>", "manage: create")
	if _, err := ts.jetStream().Stream(t.Context(), "K8S"); !errors.Is(err,
		jetstream.ErrStreamNotFound) {
		t.Errorf("the stream: %v", err)
	}
	ts.openSink() // creates it
	ts.openSink(verify)
}

func TestNoJetStream(t *testing.T) {
	ts := newTestServer(t, func(o *server.Options) { o.JetStream = false })
	err := ts.newSink().Open(t.Context())
	wantClass(t, err, sinks.Retry)
	wantMentions(t, err, "no JetStream", "-js", "mode: core")
}

func TestNoAPIRights(t *testing.T) {
	ts := newTestServer(t, withUser("bridge", "secret", denyPublish("$JS.API.>")))
	sink := ts.newSink(func(c *nats.Options) {
		c.Username, c.Password = "bridge", "secret"
		c.Timeout = 2 * time.Second
	})
	wantNamed(t, "permission for $JS.API.>", func() error {
		err := sink.Open(t.Context())
		wantClass(t, err, sinks.Retry)
		return err
	})
}

func TestFullStream(t *testing.T) {
	ts := newTestServer(t)
	full := jetstream.StreamConfig{
		Name: "K8S", Subjects: []string{"k8s.test.>"}, Duplicates: 2 * time.Minute, MaxMsgs: 1,
		Discard: jetstream.DiscardNew,
	}
	if _, err := ts.jetStream().CreateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	sink := ts.openSink()
	mustStore(t, sink, ev("a", 1))
	err := call(t, sink, ev("a", 2))[0].Err
	wantClass(t, err, sinks.Retry)
	wantMentions(t, err, "maximum messages exceeded")
	full.MaxMsgs = 10 // what the runbook says
	if _, err := ts.jetStream().UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	mustStore(t, sink, ev("a", 2))
}

func TestUnsafeSettings(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		says   string // nothing: no warning
	}{
		"sound": {func(c *jetstream.StreamConfig) {
			c.MaxAge,
				c.MaxBytes = 168*time.Hour, 1<<30
		}, ""},
		"refuses when full": {func(c *jetstream.StreamConfig) {
			c.Discard,
				c.MaxMsgs = jetstream.DiscardNew, 1000
		}, "discard new"},
		"keeps one of a subject": {
			func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 },
			"max_msgs_per_subject",
		},
		"keeps so many": {
			func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 },
			"max_msgs",
		},
		"forgets within the hour": {
			func(c *jetstream.StreamConfig) { c.MaxAge = 10 * time.Minute },
			"for 10m0s only",
		},
		"is in memory, as is asked": {
			func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
			"in memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t)
			existing := jetstream.StreamConfig{
				Name: "K8S", Subjects: []string{"k8s.test.>"},
				Duplicates: 2 * time.Minute,
			}
			c.change(&existing)
			if _, err := ts.jetStream().CreateStream(t.Context(), existing); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			ts.openSink(func(cfg *nats.Options) {
				cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
				if existing.Storage == jetstream.MemoryStorage {
					cfg.Stream.Storage = "memory"
				}
			})
			warned := strings.Contains(log.String(), "may lose events")
			if warned != (c.says != "") || !strings.Contains(log.String(), c.says) {
				t.Errorf("want a warning of %q, the log says\n%s", c.says, log.String())
			}
		})
	}
}

func TestSingleReplicaOnCluster(t *testing.T) {
	servers := newTestCluster(t)
	var log bytes.Buffer
	sink := newSinkOver(t, servers[0].url(), func(c *nats.Options) {
		c.Stream.Replicas, c.Timeout = 1, 20*time.Second
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	defer sink.Close()
	eventually(t, "open", func() error { return sink.Open(t.Context()) })
	if !strings.Contains(log.String(), "one replica on a cluster") {
		t.Errorf("the log says\n%s", log.String())
	}
}
