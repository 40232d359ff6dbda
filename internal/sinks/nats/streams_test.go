package nats_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestStreamTemplate(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(severalStreams)
	mustMeet(t, sink, ev("a", 1), of("pods", "p", 1))
	mustStore(t, sink, ev("a", 1), of("pods", "p", 1))
	if err := sink.DeadLetter(t.Context(), of("pods", "p", 2), errTest, 1); err != nil {
		t.Fatal(err)
	}
	js := ts.jetStream()
	for stream, want := range map[string][]string{
		"K8S-test-deployments": {"k8s.test.apps.v1.deployments.shop.a.updated"},
		"K8S-test-pods": {
			"k8s.test.apps.v1.pods.shop.p.updated",
			"k8s.test._deadletter.pods.updated",
		},
	} {
		var subjects []string
		for _, m := range storedMessages(t, js, stream) {
			subjects = append(subjects, m.Subject)
		}
		if !slices.Equal(subjects, want) {
			t.Errorf("%s holds %q, want %q", stream, subjects, want)
		}
	}
}

func TestManyStreams(t *testing.T) {
	sink := newTestServer(t).openSink(severalStreams, func(c *nats.Options) { c.Stream.MaxStreams = 1 })
	mustMeet(t, sink, ev("a", 1))
	if _, err := sink.Lane(t.Context(), of("pods", "p", 1)); sinks.Classify(err) != sinks.Refused {
		t.Errorf("a second stream: %v", err)
	}
	mustStore(t, sink, ev("a", 2)) // continues
}

func TestStreamLimits(t *testing.T) {
	ts := newTestServer(t)
	small := jetstream.StreamConfig{
		Name: "K8S-test-pods", Subjects: []string{
			"k8s.test.*.*.pods.*.*.*",
			"k8s.test._deadletter.pods.*",
		}, MaxMsgSize: 5000, Duplicates: 2 * 60e9,
	}
	if _, err := ts.jetStream().CreateStream(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	sink := ts.openSink(severalStreams)
	large, pod := sinktest.NewEvent("a", 1, 6000), of("pods", "p", 1)
	pod.Data = sinktest.NewEvent("p", 1, 6000).Data
	mustMeet(t, sink, large, pod)
	batch := call(t, sink, large, pod)
	if batch[0].Err != nil {
		t.Errorf("in a stream without a limit: %v", batch[0].Err)
	}
	wantClass(t, batch[1].Err, sinks.Refused)
	wantMentions(t, batch[1].Err, "max_msg_size is 5000")
	if sink.Fits(large) != nil || sink.Fits(pod) == nil {
		t.Errorf("Fits says %v and %v", sink.Fits(large), sink.Fits(pod))
	}
}

// A stream that can't be used holds up its own objects, and is not the end of the bridge.
func TestStreamDiffers(t *testing.T) {
	ts := newTestServer(t)
	js := ts.jetStream()
	odd := jetstream.StreamConfig{Name: "K8S-test-pods", Subjects: []string{"other"}}
	if _, err := js.CreateStream(t.Context(), odd); err != nil {
		t.Fatal(err)
	}
	sink := ts.openSink(severalStreams)
	_, err := sink.Lane(t.Context(), of("pods", "p", 1))
	wantClass(t, err, sinks.Retry)
	wantMentions(t, err, "K8S-test-pods", "do not cover")
	mustMeet(t, sink, ev("a", 1))
	if err := js.DeleteStream(t.Context(), odd.Name); err != nil {
		t.Fatal(err)
	}
	eventually(t, "meet", func() error { // as in reopenSink
		_, err := sink.Lane(t.Context(), of("pods", "p", 1))
		return err
	})
	mustStore(t, sink, of("pods", "p", 1))
}

func TestStreamTemplateCheck(t *testing.T) {
	for name, c := range map[string]struct {
		config nats.Config
		says   string
	}{
		"by op": {nats.Config{Stream: nats.Stream{Name: "K8S-{op}"}}, "{op} changes"},
		"not in subject": {nats.Config{
			Subject: "k8s.{cluster}.{name}",
			Stream:  nats.Stream{Name: "K8S-{resource}"},
		}, "needs {resource}"},
		"subjects given": {nats.Config{Stream: nats.Stream{
			Name:     "K8S-{resource}",
			Subjects: []string{"k8s.>"},
		}}, "leave them out"},
		"no such field": {nats.Config{Stream: nats.Stream{Name: "K8S-{shard}"}}, "{shard}"},
		"not in the dead": {nats.Config{
			DeadLetterSubject: "dead.{op}",
			Stream:            nats.Stream{Name: "K8S-{resource}"},
		}, "deadLetter"},
		"part of a token": {nats.Config{
			Subject: "k8s.x{resource}.{name}",
			Stream:  nats.Stream{Name: "K8S-{resource}"},
		}, "token of its own"},
		"a dot in a stream": {
			nats.Config{Stream: nats.Stream{Name: "K8S.{resource}"}},
			"not allowed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nats.New(nats.Options{
				Config: testkit.WithDefaults(c.config),
				Common: sinks.Common{Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "test"},
			})
			wantMentions(t, err, c.says)
		})
	}
}

// A domain is another JetStream, behind a leaf node: the one of the server that the sink talks to
// has none of the streams.
func TestDomain(t *testing.T) {
	port := testkit.Port(t)
	hub := newTestServer(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "hub", "hub"
		o.LeafNode = server.LeafNodeOpts{Host: "127.0.0.1", Port: port}
	})
	remote := []*url.URL{{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", port)}}
	far := newTestServer(t, func(o *server.Options) {
		o.ServerName, o.JetStreamDomain = "far", "far"
		o.LeafNode = server.LeafNodeOpts{
			ReconnectInterval: 50 * time.Millisecond,
			Remotes:           []*server.RemoteLeafOpts{{URLs: remote}},
		}
	})
	sink := hub.newSink(func(c *nats.Options) { c.Domain = "far" })
	defer sink.Close()
	eventually(t, "open", func() error { return sink.Open(t.Context()) })
	from := sink.Position()
	// the leaf has to hear of the stream's subjects
	eventually(t, "publish", func() error { return call(t, sink, ev("a", 1))[0].Err })
	if stored := storedMessages(t, far.jetStream(), "K8S"); len(stored) != 1 {
		t.Errorf("%d messages are stored behind the leaf, want 1", len(stored))
	}
	if _, err := hub.jetStream().Stream(t.Context(), "K8S"); !errors.Is(err,
		jetstream.ErrStreamNotFound) {
		t.Errorf("the stream in the domain of the server itself: %v", err)
	}
	wantIDs(t, recalled(t, sink, from), ev("a", 1))
}

// Another account has the streams and exports the API, as operators of shared servers do.
func TestAPIPrefix(t *testing.T) {
	file := filepath.Join(t.TempDir(), "accounts.conf")
	err := os.WriteFile(file, []byte(`accounts: {
  STREAMS: {
    jetstream: enabled
    users: [{user: owner, password: p}]
    exports: [{service: "$JS.API.>", response_type: stream}, {service: "k8s.>"}]
  }
  BRIDGE: {
    users: [{user: bridge, password: p}]
    imports: [
      {service: {account: STREAMS, subject: "$JS.API.>"}, to: "streams.API.>"}
      {service: {account: STREAMS, subject: "k8s.>"}}
    ]
  }
}`), 0o600)
	testkit.OK(t, err)
	ts := newTestServer(t, func(o *server.Options) { testkit.OK(t, o.ProcessConfigFile(file)) })
	open := func(prefix string) (*nats.Sink, error) {
		sink := ts.newSink(func(c *nats.Options) {
			c.Username, c.Password, c.APIPrefix = "bridge", "p", prefix
		})
		t.Cleanup(func() { sink.Close() })
		return sink, sink.Open(t.Context())
	}
	if _, err := open(""); err == nil {
		t.Error("the bridge's own account has no streams, and the sink is open")
	}
	sink, err := open("streams.API")
	testkit.OK(t, err)
	mustStore(t, sink, ev("a", 1))
}

func TestStreamSettings(t *testing.T) {
	ts := newTestServer(t)
	sink := ts.openSink(func(c *nats.Options) {
		c.Stream.Compression, c.Stream.MaxMsgsPerSubject = "none", 3
		c.Stream.DenyDelete, c.Stream.DenyPurge = true, true
		c.Stream.Placement = nats.Placement{Cluster: "eu", Tags: []string{"ssd"}}
	})
	mustStore(t, sink, ev("a", 1))
	stream, err := ts.jetStream().Stream(t.Context(), "K8S")
	testkit.OK(t, err)
	got := stream.CachedInfo().Config
	if got.Compression != jetstream.NoCompression || got.MaxMsgsPerSubject != 3 || !got.DenyDelete || !got.DenyPurge {
		t.Errorf("the stream has %+v", got)
	}
	if p := got.Placement; p == nil || p.Cluster != "eu" || !slices.Equal(p.Tags, []string{"ssd"}) {
		t.Errorf("the stream is asked for at %+v", p) // a single server stores it and has no choice
	}
	if err := stream.DeleteMsg(t.Context(), 1); err == nil {
		t.Error("an event can be deleted")
	}
	if err := stream.Purge(t.Context()); err == nil {
		t.Error("the stream can be purged")
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		subject, pattern string
		want             bool
	}{
		{"k8s.prod.>", "k8s.prod.*.*.*.*.*.*", true},
		{"k8s.>", "k8s.prod.a", true},
		{"k8s.*.a", "k8s.prod.a", true},
		{"k8s.*", "k8s.*", true},
		{"k8s.prod.a", "k8s.prod.*", false},
		{"k8s.*", "k8s.>", false},
		{"k8s.>", "k8s", false},
		{"k8s.>", "k8s.>", true},
		{"k8s.a.b", "k8s.a", false},
		{"k8s.a", "k8s.a.b", false},
		{"other.>", "k8s.a", false},
		{">", "k8s.a", true},
	} {
		if got := nats.Covers(c.subject, c.pattern); got != c.want {
			t.Errorf("%s covers %s: %v, want %v", c.subject, c.pattern, got, c.want)
		}
	}
}

// Templates decide what the stream takes in; a dead letter that no stream takes would be lost.
func TestDerivedSubjects(t *testing.T) {
	for _, c := range []struct {
		name, template, subjects, dead string
	}{
		{"default", "", "k8s.test.>", "k8s.test._deadletter.deployments.updated"},
		{
			"without the cluster", "events.{kind}.{name}", "events.>",
			"events._deadletter.deployments.updated",
		},
		{
			"cluster within a token", "k8s-{cluster}.{uid}", "k8s-test.>",
			"k8s-test._deadletter.deployments.updated",
		},
		{
			"field within the first token but one",
			"a.b-{kind}.c", "a.>", "a._deadletter.deployments.updated",
		},
		{
			"one subject for all", "events", "events events._deadletter.*.*",
			"events._deadletter.deployments.updated",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ts := newTestServer(t)
			sink := ts.openSink(func(cfg *nats.Options) { cfg.Subject = cmp.Or(c.template, cfg.Subject) })
			stream, err := ts.jetStream().Stream(t.Context(), "K8S")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(stream.CachedInfo().Config.Subjects, " "); got != c.subjects {
				t.Errorf("subjects %q, want %q", got, c.subjects)
			}
			mustStore(t, sink, ev("a", 1))
			if err := sink.DeadLetter(t.Context(), ev("a", 2), errTest, 1); err != nil {
				t.Fatal(err)
			}
			if m := storedMessages(t, ts.jetStream(), "K8S"); m[1].Subject != c.dead {
				t.Errorf("dead letter went to %s, want %s", m[1].Subject, c.dead)
			}
		})
	}
}

func TestSubject(t *testing.T) {
	ts := newTestServer(t)
	core := ev("web.example.com", 1)
	core.Group, core.Resource, core.Namespace = "", "nodes", ""
	mustStore(t, ts.openSink(), ev("web", 1), core)
	stored := storedMessages(t, ts.jetStream(), "K8S")
	for i, want := range []string{
		"k8s.test.apps.v1.deployments.shop.web.updated",
		"k8s.test.core.v1.nodes.-.web_example_com.updated",
	} {
		if stored[i].Subject != want {
			t.Errorf("subject %s, want %s", stored[i].Subject, want)
		}
	}
	// Exact case: a client that asks for another spelling must not find it by chance only.
	header := stored[0].Header
	for name, want := range map[string]string{
		natsclient.MsgIdHdr: "workloads/uid-web/1", "ce-id": "uid-web/1", "ce-specversion": "1.0",
		"ce-datacontenttype": "application/json",
		"ce-time":            "2026-11-21T10:20:30.123456789Z",
	} {
		if got := header[name]; len(got) != 1 || got[0] != want {
			t.Errorf("header %s is %v, want %q", name, got, want)
		}
	}
	if _, ok := header["Content-Type"]; ok {
		t.Error("a message in binary mode has Content-Type, which marks structured mode")
	}
}

func TestConfigProblems(t *testing.T) {
	_, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(nats.Config{
			Mode: "jetstreams", Subject: "k8s.{nope}.x", DeadLetterSubject: "dead letters",
			Token: "t", Username: "u", TLS: &sinks.TLS{CertFile: "c"},
		}),
		Common: sinks.Common{Encoding: "xml"},
	})
	wantMentions(t, err, "mode", "encoding", "{nope}", "deadLetter", "auth", "tls")

	for name, c := range map[string]struct {
		cfg  nats.Config
		says string
	}{
		"cluster": {nats.Config{}, "cluster is not set"},
		"stream": {nats.Config{Stream: nats.Stream{
			Name:    "a.b",
			Storage: "tape",
		}}, "stream.storage"},
		"duplicates": {
			nats.Config{Stream: nats.Stream{MaxAge: 1e9}},
			"longer than stream.maxAge",
		},
		"empty token": {nats.Config{Subject: "k8s..{name}"}, "empty token"},
		"wildcard":    {nats.Config{Subject: "k8s.*.{name}"}, "wildcards"},
		"reserved": {
			nats.Config{Subject: "$JS.{name}"},
			"belong to the server",
		},
		"no constant": {
			nats.Config{Subject: "{kind}.{name}"},
			"begins with a field",
		},
		"not covered": {nats.Config{
			Stream: nats.Stream{Subjects: []string{"k8s.other.>"}},
		}, "do not cover [k8s.c."},
		"dead letter out": {nats.Config{
			DeadLetterSubject: "poison.{name}",
			Stream:            nats.Stream{Subjects: []string{"k8s.c.>"}},
		}, "poison.*"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := "c"
			if name == "cluster" {
				cluster = ""
			}
			_, err := nats.New(nats.Options{
				Config: testkit.WithDefaults(c.cfg),
				Common: sinks.Common{Encoding: sinks.Binary}, Env: sinks.Env{Cluster: cluster},
			})
			wantMentions(t, err, c.says)
		})
	}
	if _, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(nats.Config{DeadLetterSubject: nats.NoDeadLetter}),
		Common: sinks.Common{Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "c"},
	}); err != nil {
		t.Errorf("a sound configuration: %v", err)
	}
}

func wantMentions(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one about %v", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v\ndoes not mention %q", err, word)
		}
	}
}
