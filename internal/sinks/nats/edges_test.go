package nats_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// edge is a sink that runs into a server, where an administrator changes something.
type edge struct {
	*testServer
	*sinktest.Edge
	stream string
}

const (
	asUser  = "bridge"
	asOwner = "owner"
	ofUser  = "secret"
	ofOwner = "o"
)

func newEdge(t testing.TB, kind string) *edge {
	e := &edge{
		Edge:   &sinktest.Edge{TB: t},
		stream: map[string]string{"stream": "K8S", "bucket": "KV_SHOP"}[kind],
	}
	e.testServer = newTestServer(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: asUser, Password: ofUser}, {Username: asOwner, Password: ofOwner}}
		o.NoAuthUser = asOwner
	})
	change := map[string]func(*nats.Options){
		"stream": func(*nats.Options) {}, "bucket": inBucket, "core": coreMode,
	}[kind]
	e.Start(e.newSink(change, func(o *nats.Options) {
		o.Username, o.Password = asUser, ofUser
		o.Timeout, o.AckTimeout = 2*time.Second, 2*time.Second
		o.Log = e.Logger()
	}), 5*time.Second)
	return e
}

// loses waits until the log has a loss of what was acknowledged.
func (e *edge) loses(reason string) {
	e.t.Helper()
	e.Logs("has lost what it had acknowledged", "destination="+e.stream, "reason="+reason)
}

// permit lets the bridge's user publish all but some subjects.
func (e *edge) permit(denied ...string) {
	e.reload(func(o *server.Options) {
		user := *o.Users[0]
		user.Permissions = nil
		if len(denied) > 0 {
			user.Permissions = &server.Permissions{Publish: &server.SubjectPermission{Deny: denied}}
		}
		o.Users = []*server.User{&user, o.Users[1]}
	})
}

func (e *edge) password(is string) {
	e.reload(func(o *server.Options) {
		user := *o.Users[0]
		user.Password = is
		o.Users = []*server.User{&user, o.Users[1]}
	})
}

func (e *edge) found() jetstream.Stream {
	e.t.Helper()
	s, err := e.jetStream().Stream(e.t.Context(), e.stream)
	testkit.OK(e.t, err)
	return s
}

// TestEdges is what an administrator does while the sink runs: what is said within 20 seconds, that
// other objects continue where only one is concerned, and that all is stored within a minute of the
// cause's end.
func TestEdges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	const web, api = "web", "api"
	nothing := func(*edge) {}
	setting := func(change, undo func(*jetstream.StreamConfig)) (do, back func(*edge)) {
		return func(e *edge) { e.updateStream(e.stream, change) }, func(e *edge) { e.updateStream(e.stream, undo) }
	}
	full, roomy := setting(
		func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew },
		func(c *jetstream.StreamConfig) { c.MaxMsgs = -1 })
	fullBytes, roomyBytes := setting(
		func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 1000, jetstream.DiscardNew },
		func(c *jetstream.StreamConfig) { c.MaxBytes = -1 })
	away, given := setting(
		func(c *jetstream.StreamConfig) { c.Subjects = []string{"other.>"} },
		func(c *jetstream.StreamConfig) { c.Subjects = []string{"k8s.test.>"} })
	recreate := func(change func(*jetstream.StreamConfig)) func(e *edge) {
		return func(e *edge) {
			config := e.found().CachedInfo().Config
			js := e.jetStream()
			testkit.OK(e.t, js.DeleteStream(e.t.Context(), e.stream))
			config.Sealed, config.DenyDelete = false, false
			change(&config)
			eventually(e.t, "create", func() error {
				_, err := js.CreateStream(e.t.Context(), config)
				return err
			})
		}
	}
	for _, c := range []struct {
		name  string
		kinds string
		do    func(e *edge)
		says  []string // while web can't be stored
		lost  string   // of what was acknowledged before
		alone bool     // only web is concerned
		undo  func(e *edge)
	}{
		{
			"deleted", "stream bucket",
			func(e *edge) { testkit.OK(e.t, e.jetStream().DeleteStream(e.t.Context(), e.stream)) },
			nil, sinks.Recreated, false, nothing,
		},
		{
			"recreated", "stream bucket", recreate(func(*jetstream.StreamConfig) {}),
			nil, sinks.Recreated, false, nothing,
		},
		{
			"recreated with other subjects", "stream",
			recreate(func(c *jetstream.StreamConfig) { c.Subjects = []string{"other.>"} }),
			[]string{"subjects"},
			sinks.Recreated, false, given,
		},
		{
			"purged", "stream bucket", func(e *edge) { testkit.OK(e.t, e.found().Purge(e.t.Context())) },
			nil, sinks.Purged, false, nothing,
		},
		{
			"partly purged", "stream",
			func(e *edge) { testkit.OK(e.t, e.found().Purge(e.t.Context(), jetstream.WithPurgeSequence(2))) },
			nil, sinks.Purged, false, nothing,
		},
		{
			"a subject is purged", "stream",
			func(e *edge) {
				s := e.found()
				last, err := s.GetMsg(e.t.Context(), s.CachedInfo().State.LastSeq)
				testkit.OK(e.t, err)
				testkit.OK(e.t, s.Purge(e.t.Context(), jetstream.WithPurgeSubject(last.Subject)))
			},
			nil, sinks.Purged, false, nothing,
		},
		{
			"full of messages", "stream", full,
			[]string{"nothing of ", "maximum messages exceeded"},
			"", false, roomy,
		},
		{
			"full of bytes", "stream", fullBytes,
			[]string{"nothing of ", "maximum bytes exceeded"},
			"", false, roomyBytes,
		},
		{
			"its subjects are taken away", "stream", away,
			[]string{"no stream takes the subject", "has other subjects"},
			"", false, given,
		},
		{
			"sealed", "stream",
			func(e *edge) { e.updateStream(e.stream, func(c *jetstream.StreamConfig) { c.Sealed = true }) },
			[]string{"nothing of ", "sealed"},
			sinks.Recreated, false, recreate(func(*jetstream.StreamConfig) {}),
		},
		{
			"a right is taken and given back", "stream", func(e *edge) { e.permit("k8s.test.*.*.*.*." + web + ".*") },
			[]string{"nothing of ", "Permissions Violation for Publish to"},
			"", true, func(e *edge) { e.permit() },
		},
		{
			"a right is taken and given back", "bucket", func(e *edge) { e.permit("$KV.SHOP.*.*.*." + web) },
			[]string{"nothing of ", "Permissions Violation for Publish to"},
			"", true, func(e *edge) { e.permit() },
		},
		{
			"another password", "stream bucket core", func(e *edge) { e.password("changed") },
			[]string{"can't be reached", "Authorization Violation"},
			"", false, func(e *edge) { e.password(ofUser) },
		},
		{
			"the server is gone", "stream bucket core", func(e *edge) { e.testServer.stop() },
			[]string{"can't be reached since", "connection refused"},
			"", false, func(e *edge) { e.testServer.start() },
		},
	} {
		for kind := range strings.FieldsSeq(c.kinds) {
			t.Run(c.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				e := newEdge(t, kind)
				e.Add(api, 1, 300)
				e.Want(patience, api+"1")
				e.Add(web, 1, 300)
				e.Want(patience, web+"1")
				e.Inspected()
				c.do(e)
				e.Add(web, 2, 300)
				if c.alone {
					e.Add(api, 2, 300)
					e.Want(5*time.Second, api+"2")
				}
				if len(c.says) > 0 {
					e.Says(c.says...)
				}
				c.undo(e)
				if c.lost != "" {
					e.loses(c.lost)
				}
				if !c.alone {
					e.Add(api, 2, 300)
					e.Want(time.Minute, web+"2", api+"2")
				} else {
					e.Want(time.Minute, web+"2")
				}
				e.IsWell()
				if e.stream == "" {
					return
				}
				var got []string
				s := e.found()
				for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
					m, err := s.GetMsg(t.Context(), seq)
					if errors.Is(err, jetstream.ErrMsgNotFound) {
						continue
					}
					testkit.OK(t, err)
					name, err := url.PathUnescape(m.Header.Get("ce-name"))
					testkit.OK(t, err)
					got = append(got, name+m.Header.Get("ce-resourceversion"))
				}
				text := strings.Join(got, " ")
				if strings.Count(text, "web2") != 1 || strings.Count(text, "api2") != 1 {
					t.Errorf("stored: %s", text)
				}
			})
		}
	}
}

// latencies is a Settler that notes how long each item took, but for those of one object.
type latencies struct {
	mu    sync.Mutex
	took  []time.Duration
	added map[*publisher.Item]time.Time
	left  sync.WaitGroup
}

func (l *latencies) Settle(items []*publisher.Item) {
	now := time.Now()
	for _, it := range items {
		it.Hold.Release()
		l.mu.Lock()
		if at, ok := l.added[it]; ok {
			l.took = append(l.took, now.Sub(at))
			l.left.Done()
		}
		l.mu.Unlock()
	}
}

// BenchmarkBesideForbidden reports in pairs how late the events of nine objects are, beside a tenth
// whose subject is forbidden, and beside one that is not.
func BenchmarkBesideForbidden(b *testing.B) {
	const (
		rounds, objects = 50, 10
		pause           = 100 * time.Millisecond
	)
	e := newEdge(b, "stream")
	version := 0
	measure := func() time.Duration {
		l := &latencies{added: map[*publisher.Item]time.Time{}}
		for range rounds {
			version++
			for o := range objects {
				it := &publisher.Item{Message: sinks.Message{Event: ev(fmt.Sprint("o", o), version)}, Settler: l}
				if o > 0 {
					l.left.Add(1)
					l.mu.Lock()
					l.added[it] = time.Now()
					l.mu.Unlock()
				}
				testkit.OK(b, e.Publisher.Add(b.Context(), []*publisher.Item{it}))
			}
			time.Sleep(pause)
		}
		l.left.Wait()
		slices.Sort(l.took)
		return l.took[len(l.took)*99/100]
	}
	measure() // connections, memory
	var allowed, denied time.Duration
	pairs := 0
	for b.Loop() {
		pairs++
		allowed += measure()
		e.permit("k8s.test.*.*.*.*.o0.*")
		denied += measure()
		e.permit()
	}
	b.ReportMetric(allowed.Seconds()*1000/float64(pairs), "allowed-p99-ms")
	b.ReportMetric(denied.Seconds()*1000/float64(pairs), "denied-p99-ms")
}
