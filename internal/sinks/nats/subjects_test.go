package nats_test

import (
	"cmp"
	"strings"
	"testing"

	natsclient "github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

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
