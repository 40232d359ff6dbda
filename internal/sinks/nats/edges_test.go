package nats_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
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
	kind   string

	before   jetstream.StreamConfig   // of the stream when it was made
	received *natsclient.Subscription // of core NATS
	got      []string                 // by it
	network  *proxy                   // with slowServer
	peers    []*testServer            // with threeServers
	ca       *authority               // with ofAuthority
	trusted  string                   // the file with the authority that the sink trusts
}

const (
	asUser  = "bridge"
	asOwner = "owner"
	ofUser  = "secret"
	ofOwner = "o"
)

// Servers of a cell, beside the usual one.
const (
	slowServer   = "slow"
	threeServers = "three"
	ofAuthority  = "authority" // with TLS
)

func newEdge(t testing.TB, kind, servers string) *edge {
	e := &edge{
		Edge:   &sinktest.Edge{TB: t},
		stream: map[string]string{"stream": "K8S", "bucket": "KV_SHOP"}[kind],
		kind:   kind,
	}
	users := func(o *server.Options) {
		o.Users = []*server.User{{Username: asUser, Password: ofUser}, {Username: asOwner, Password: ofOwner}}
		o.NoAuthUser = asOwner
	}
	change := func(*nats.Options) {}
	switch servers {
	case threeServers:
		cluster := newTestCluster(t, users)
		e.testServer, e.peers = cluster[0], cluster[1:]
		if change = func(o *nats.Options) { o.Stream.Replicas = 3 }; kind == "core" {
			change = func(*nats.Options) {}
		}
	case ofAuthority:
		e.ca = newAuthority(t)
		e.trusted = e.ca.caFile
		e.testServer = newTestServer(t, users, e.ca.server(false, false))
		change = withTLS(sinks.TLS{CAFile: e.ca.caFile})
	default:
		e.testServer = newTestServer(t, users)
	}
	if servers == slowServer {
		e.network = newProxy(t, e.url())
		change = func(o *nats.Options) { o.Servers = addresses(e.network.url()) }
	}
	mode := map[string]func(*nats.Options){
		"stream": func(*nats.Options) {}, "bucket": inBucket, "core": coreMode,
	}[kind]
	e.Start(e.newSink(mode, change, func(o *nats.Options) {
		o.Username, o.Password = asUser, ofUser
		o.Timeout, o.AckTimeout = 2*time.Second, 2*time.Second
		o.Log = e.Logger()
	}), 5*time.Second)
	if kind != "core" {
		e.before = e.found().CachedInfo().Config
		return e
	}
	reader := e.owner()
	if len(e.peers) > 0 {
		reader = e.peers[0].client()
	}
	var err error
	e.received, err = reader.SubscribeSync("k8s.test.>")
	testkit.OK(t, err)
	testkit.OK(t, reader.Flush())
	return e
}

// owner is a connection of an administrator.
func (e *edge) owner() *natsclient.Conn {
	if e.ca == nil {
		return e.client()
	}
	nc, err := natsclient.Connect(e.url(), natsclient.MaxReconnects(-1), natsclient.ReconnectWait(20*time.Millisecond),
		natsclient.Secure(&tls.Config{InsecureSkipVerify: true}))
	testkit.OK(e.t, err)
	e.t.Cleanup(nc.Close)
	return nc
}

func (e *edge) admin() jetstream.JetStream {
	js, err := jetstream.New(e.owner())
	testkit.OK(e.t, err)
	return js
}

// loses waits until the log has a loss of what was acknowledged.
func (e *edge) loses(reason string) {
	e.t.Helper()
	e.Logs("has lost what it had acknowledged", "destination="+e.stream, "reason="+reason)
}

// permit lets the bridge's user publish all but the events of an object.
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

func (e *edge) found() (s jetstream.Stream) {
	e.t.Helper()
	js := e.admin()
	eventually(e.t, "the stream answers", func() (err error) {
		s, err = js.Stream(e.t.Context(), e.stream)
		return err
	})
	return s
}

// deleteStream deletes the stream, and what it has.
func (e *edge) deleteStream() { testkit.OK(e.t, e.admin().DeleteStream(e.t.Context(), e.stream)) }

// recreate deletes the stream and makes it as it was, with a change.
func (e *edge) recreate(change func(*jetstream.StreamConfig)) {
	e.deleteStream()
	config := e.before
	change(&config)
	eventually(e.t, "create", func() error {
		_, err := e.admin().CreateStream(e.t.Context(), config)
		return err
	})
}

// restore gives the stream its settings back.
func (e *edge) restore() {
	e.updateStream(e.stream, func(c *jetstream.StreamConfig) { *c = e.before })
}

// lead has another server lead the stream.
func (e *edge) lead() {
	answer, err := e.owner().Request("$JS.API.STREAM.LEADER.STEPDOWN."+e.stream, nil, patience)
	testkit.OK(e.t, err)
	if !strings.Contains(string(answer.Data), `"success":true`) {
		e.t.Errorf("step down: %s", answer.Data)
	}
}

// stored are the events that the destination has, each as a name with a version.
func (e *edge) stored() []string {
	add := func(to []string, header natsclient.Header) []string {
		if name := header["ce-name"]; name != nil {
			to = append(to, name[0]+header["ce-resourceversion"][0])
		}
		return to
	}
	if e.kind == "core" {
		for {
			m, err := e.received.NextMsg(100 * time.Millisecond)
			if err != nil {
				return e.got
			}
			e.got = add(e.got, m.Header)
		}
	}
	s := e.found()
	var got []string
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(e.t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		testkit.OK(e.t, err)
		got = add(got, m.Header)
	}
	return got
}

const (
	web, api = "web", "api"
	webSize  = 5_000 // of the event that a cell is about
)

// edgeCell is what an administrator does.
type edgeCell struct {
	name    string
	kinds   string // of destinations
	do      func(e *edge)
	says    []string // while web can't be stored; none where it is stored in spite of that
	lost    string   // the reason: what was acknowledged before is lost
	alone   bool     // only web is concerned
	undo    func(e *edge)
	servers string
}

// edgeCells are those of streams, buckets and core NATS.
func edgeCells() []edgeCell {
	change := func(how func(*jetstream.StreamConfig)) func(*edge) {
		return func(e *edge) { e.updateStream(e.stream, how) }
	}
	recreate := func(how func(*jetstream.StreamConfig)) func(*edge) {
		return func(e *edge) { e.recreate(how) }
	}
	slow := func(by time.Duration) func(*edge) { return func(e *edge) { e.network.delayBy(by) } }
	same := func(*jetstream.StreamConfig) {}
	nothing := func(*edge) {}
	payload := func(most int32) func(*edge) {
		return func(e *edge) { e.reload(func(o *server.Options) { o.MaxPayload = most }) }
	}
	purge := func(how ...jetstream.StreamPurgeOpt) func(*edge) {
		return func(e *edge) { testkit.OK(e.t, e.found().Purge(e.t.Context(), how...)) }
	}
	return []edgeCell{
		{
			name: "deleted", kinds: "stream bucket", lost: sinks.Recreated,
			do: (*edge).deleteStream, undo: nothing,
		},
		{
			name: "recreated", kinds: "stream bucket", lost: sinks.Recreated,
			do: recreate(same), undo: nothing,
		},
		{
			name: "recreated with other subjects", kinds: "stream bucket", lost: sinks.Recreated,
			do:   recreate(func(c *jetstream.StreamConfig) { c.Subjects = []string{"other.>"} }),
			says: []string{"do not cover"}, undo: (*edge).restore,
		},
		{
			name: "recreated with a history", kinds: "bucket", lost: sinks.Recreated,
			do:   recreate(func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }),
			says: []string{"bucket SHOP is not as configured", "history (max_msgs_per_subject) is 5, wanted 1"},
			undo: (*edge).restore,
		},
		{
			name: "purged", kinds: "stream bucket", lost: sinks.Purged,
			do: purge(), undo: nothing,
		},
		{
			name: "partly purged", kinds: "stream", lost: sinks.Purged,
			do: purge(jetstream.WithPurgeSequence(2)), undo: nothing,
		},
		{
			name: "a subject is purged", kinds: "stream", lost: sinks.Purged,
			do:   func(e *edge) { purge(jetstream.WithPurgeSubject("k8s.test.*.*.*.*." + web + ".*"))(e) },
			undo: nothing,
		},
		{
			name: "takes smaller messages", kinds: "stream bucket",
			do:   change(func(c *jetstream.StreamConfig) { c.MaxMsgSize = webSize / 2 }),
			undo: (*edge).restore,
		},
		{
			name: "the server takes smaller messages", kinds: "stream bucket core",
			do: payload(webSize / 2), undo: payload(1 << 20),
		},
		{
			name: "full of messages", kinds: "stream",
			do: change(func(c *jetstream.StreamConfig) {
				c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew
			}),
			says: []string{"nothing of ", "maximum messages exceeded"}, undo: (*edge).restore,
		},
		{
			name: "full of bytes", kinds: "stream bucket",
			do: change(func(c *jetstream.StreamConfig) {
				c.MaxBytes, c.Discard = 1000, jetstream.DiscardNew
			}),
			says: []string{"nothing of ", "maximum bytes exceeded"}, undo: (*edge).restore,
		},
		{
			name: "its subjects are taken away", kinds: "stream bucket",
			do:   change(func(c *jetstream.StreamConfig) { c.Subjects = []string{"other.>"} }),
			says: []string{"no stream takes the subject", "has other subjects"}, undo: (*edge).restore,
		},
		{
			name: "sealed", kinds: "stream bucket", lost: sinks.Recreated,
			do:   change(func(c *jetstream.StreamConfig) { c.Sealed = true }),
			says: []string{"nothing of ", "sealed"}, undo: recreate(same),
		},
		{
			name: "a right is taken and given back", kinds: "stream bucket core", alone: true,
			do: func(e *edge) {
				e.permit("k8s.test.*.*.*.*."+web+".*", "$KV.SHOP.*.*.*."+web)
			},
			says: []string{"nothing of ", "Permissions Violation for Publish to"},
			undo: func(e *edge) { e.permit() },
		},
		{
			name: "another password", kinds: "stream bucket core",
			do:   func(e *edge) { e.password("changed") },
			says: []string{"can't be reached", "Authorization Violation"},
			undo: func(e *edge) { e.password(ofUser) },
		},
		{
			name: "a certificate of another authority", kinds: "stream bucket core", servers: ofAuthority,
			do: func(e *edge) {
				e.testServer.stop()
				e.ca = newAuthority(e.t)
				e.ca.server(false, false)(&e.opts)
				e.testServer.start()
			},
			says: []string{"can't be reached", "certificate signed by unknown authority"},
			undo: func(e *edge) { e.trust() },
		},
		{
			name: "the server is gone", kinds: "stream bucket core",
			do:   func(e *edge) { e.testServer.stop() },
			says: []string{"can't be reached since", "connection refused"},
			undo: func(e *edge) { e.testServer.start() },
		},
		{
			name: "slow by 1 s", kinds: "stream bucket core", servers: slowServer,
			do: slow(time.Second), undo: slow(0),
		},
		{
			name: "slow by 5 s", kinds: "stream bucket", servers: slowServer,
			do: slow(5 * time.Second), undo: slow(0), // late acks are believed
		},
		{
			name: "slow by 5 s", kinds: "core", servers: slowServer,
			do:   slow(5 * time.Second),
			says: []string{"nothing of ", "no ack in time"}, undo: slow(0),
		},
		{
			name: "slow by 20 s", kinds: "stream bucket core", servers: slowServer,
			do:   slow(20 * time.Second),
			says: []string{"nothing of ", "no ack in time"}, undo: slow(0),
		},
		{
			name: "its server leaves the others", kinds: "stream bucket core", servers: threeServers,
			do: func(e *edge) { e.testServer.stop() }, undo: func(e *edge) { e.testServer.start() },
		},
		{
			name: "another server leads", kinds: "stream bucket", servers: threeServers,
			do: (*edge).lead, undo: nothing,
		},
		{
			name: "the quorum is lost", kinds: "stream bucket", servers: threeServers,
			do: func(e *edge) {
				for _, peer := range e.peers {
					peer.stop()
				}
			},
			says: []string{"nothing of ", "is choosing a leader"},
			undo: func(e *edge) {
				for _, peer := range e.peers {
					peer.start()
				}
			},
		},
	}
}

// TestEdges is what an administrator does while the sink runs: what is said within 20 seconds, that
// other objects continue where only one is concerned, and that all is stored within a minute of the
// cause's end.
func TestEdges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	for _, c := range edgeCells() {
		for kind := range strings.FieldsSeq(c.kinds) {
			t.Run(c.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				newEdge(t, kind, c.servers).run(&c)
			})
		}
	}
}

func (e *edge) run(c *edgeCell) {
	e.Add(api, 1, 300)
	e.Want(patience, api+"1")
	e.Add(web, 1, 300)
	e.Want(patience, web+"1")
	e.Inspected()
	c.do(e)
	e.Add(web, 2, webSize)
	if c.alone {
		e.Add(api, 2, 300)
		e.Want(5*time.Second, api+"2")
	}
	if len(c.says) > 0 {
		e.Says(c.says...)
	} else if c.lost == "" {
		e.Want(sinktest.Noticed, web+"2")
	}
	c.undo(e)
	if c.lost != "" {
		e.loses(c.lost)
	}
	var wanted []string
	if len(c.says) > 0 || c.lost != "" {
		wanted = append(wanted, web+"2")
	}
	if !c.alone {
		e.Add(api, 2, 300)
		wanted = append(wanted, api+"2")
	}
	e.Want(time.Minute, wanted...)
	e.IsWell()
	testkit.Eventually(e.t, "each event is there once", func() bool { // a replica may be behind
		text := strings.Join(e.stored(), " ")
		webs, apis := strings.Count(text, "web2"), strings.Count(text, "api2")
		if e.kind == "core" { // it may repeat
			return webs > 0 && apis > 0
		}
		return webs == 1 && apis == 1
	})
}

// trust has the sink trust the authority of the server.
func (e *edge) trust() {
	pem, err := os.ReadFile(e.ca.caFile)
	testkit.OK(e.t, err)
	testkit.OK(e.t, os.WriteFile(e.trusted, pem, 0o600))
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
	e := newEdge(b, "stream", "")
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
