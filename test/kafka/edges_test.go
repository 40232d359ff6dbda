package kafkatest_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	plainauth "github.com/twmb/franz-go/pkg/sasl/plain"
	scramauth "github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

// edge is a sink that runs into a topic, where an administrator changes something.
type edge struct {
	*sinktest.Edge
	t       *testing.T
	c       *kafkatest.Cluster
	network network
	topic   string
	view    bool // of a compacted topic

	listener  string     // with edgeCell.over
	authority *authority // of the shared broker
	other     *authority
}

// start opens a sink.
func (e *edge) start(change func(*kafka.Options)) {
	e.Start(newSink(e.t, e.c, e.network.use, func(k *kafka.Options) {
		k.Topic, k.Log = e.topic, e.Logger()
		k.View, k.Tombstones = e.view, e.view
		k.CreateTopics = &kafka.CreateTopics{Partitions: 1, ReplicationFactor: len(e.c.Nodes), Config: map[string]string{"min.insync.replicas": "1"}}
		if len(e.c.Nodes) > 1 {
			k.CreateTopics.Config["min.insync.replicas"] = "2"
		}
		if e.view {
			k.CreateTopics.Config["cleanup.policy"] = "compact"
		}
		k.Connection.Timeout = 5 * time.Second
	}, change), 30*time.Second)
}

func (e *edge) set(name, value string) {
	_, err := admin(e.t, e.c).AlterTopicConfigs(e.t.Context(), []kadm.AlterConfig{{Name: name, Value: &value}}, e.topic)
	must(e.t, err)
}

func (e *edge) delete() {
	answer, err := admin(e.t, e.c).DeleteTopics(e.t.Context(), e.topic)
	must(e.t, err)
	must(e.t, answer.Error())
}

func (e *edge) create(partitions int32) {
	policy := "delete"
	if e.view {
		policy = "compact"
	}
	e.createWith(partitions, policy)
}

func (e *edge) createWith(partitions int32, policy string) {
	config := map[string]*string{"cleanup.policy": &policy}
	testkit.Eventually(e.t, "the topic is created", func() bool {
		answer, err := admin(e.t, e.c).CreateTopic(e.t.Context(), partitions, 1, config, e.topic)
		return err == nil && answer.Err == nil
	})
}

// deleteRecords deletes records as soon as the broker takes that: of a topic that is only compacted
// they can't be deleted.
func (e *edge) deleteRecords(before int64) {
	if e.view {
		e.set("cleanup.policy", "compact,delete")
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(e.topic, 0, before, -1)
	testkit.Eventually(e.t, "records are deleted", func() bool {
		answer, err := admin(e.t, e.c).DeleteRecords(e.t.Context(), offsets)
		return cmp.Or(err, answer.Error()) == nil
	})
	if e.view {
		e.set("cleanup.policy", "compact")
	}
}

// refusing waits until the broker refuses records of a client of the test.
func (e *edge) refusing(options ...kgo.Opt) {
	e.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(e.c.Addresses()...), kgo.DefaultProduceTopic(e.topic), kgo.RecordRetries(0),
		kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()),
	}, options...)...)
	must(e.t, err)
	defer client.Close()
	testkit.Eventually(e.t, "the broker refuses records", func() bool {
		return client.ProduceSync(e.t.Context(), &kgo.Record{Key: []byte("probe"), Value: []byte("of the test")}).FirstErr() != nil
	})
}

// password changes that of the sink's user, and ends its connections: the broker keeps those that
// there are.
func (e *edge) password(is string) {
	e.t.Helper()
	answer, err := admin(e.t, e.c).AlterUserSCRAMs(e.t.Context(), nil, []kadm.UpsertSCRAM{{
		User: e.topic, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: is,
	}})
	must(e.t, cmp.Or(err, answer.Error()))
	taken, err := kgo.NewClient(kgo.SeedBrokers(e.listener), kgo.DialTLSConfig(client(e.t, "")),
		kgo.SASL(scramauth.Auth{User: e.topic, Pass: is}.AsSha512Mechanism()))
	must(e.t, err)
	defer taken.Close()
	testkit.Eventually(e.t, "the broker takes the password", func() bool {
		ctx, cancel := context.WithTimeout(e.t.Context(), 5*time.Second)
		defer cancel()
		return taken.Ping(ctx) == nil
	})
	e.reconnect()
}

// certify changes a file of the listener's TLS to that of an authority, and waits until the broker
// uses it.
func (e *edge) certify(setting string, of *authority, file string) {
	e.t.Helper()
	to := of.file(file)
	answers, err := admin(e.t, e.c).AlterBrokerConfigs(e.t.Context(), []kadm.AlterConfig{
		{Name: "listener.name." + strings.ToLower(certifiedListener) + ".ssl." + setting + ".location", Value: &to},
	}, e.c.Nodes[0].ID)
	must(e.t, err)
	must(e.t, answers[0].Err)
	testkit.Eventually(e.t, "the broker uses the file", func() bool {
		for range 4 { // its threads take it over one after the other
			if e.isTaken() != (of == e.authority) {
				return false
			}
		}
		return true
	})
	e.reconnect()
}

// isTaken reports whether the listener takes the certificate of the bridge, and has one that the
// bridge takes.
func (e *edge) isTaken() bool {
	conn, err := tls.Dial("tcp", e.listener, client(e.t, "bridge"))
	if err != nil {
		return false
	}
	defer conn.Close()
	must(e.t, conn.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = conn.Read(make([]byte, 1)) // a refusal; else nothing
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func (e *edge) reconnect() {
	e.network.cut(true)
	e.network.cut(false)
}

// edgeCell is what an administrator does.
type edgeCell struct {
	name   string
	kinds  string // of topics
	change func(*kafka.Options)
	do     func(*edge)
	says   []string // while web can't be stored; none where it is stored in spite of that
	undo   func(*edge)
	lost   string // the reason: what was acknowledged before is lost
	alone  bool   // no other cell runs beside it
	three  bool   // brokers
	asUser bool   // who has rights
	over   string // a listener of the shared broker
}

const edgeUser = "bridge0"

func edgeCells() []edgeCell {
	withoutCreation := func(k *kafka.Options) { k.CreateTopics = nil }
	recreate := func(partitions int32) func(*edge) {
		return func(e *edge) {
			e.delete()
			e.create(partitions)
		}
	}
	set := func(name, value string) func(*edge) { return func(e *edge) { e.set(name, value) } }
	slow := func(by time.Duration) func(*edge) { return func(e *edge) { e.network.late.Store(int64(by)) } }
	purge := func(before int64) func(*edge) { return func(e *edge) { e.deleteRecords(before) } }
	write := func(e *edge) right { return right{"Write", e.topic, kmsg.ACLOperationWrite, ""} }
	return []edgeCell{
		{name: "deleted", kinds: "plain view", do: (*edge).delete, lost: sinks.Recreated},
		{
			name: "deleted, and only the administrator may make it", kinds: "plain view", change: withoutCreation,
			do: (*edge).delete, says: []string{"create it"}, lost: sinks.Recreated,
			undo: func(e *edge) { e.create(1) },
		},
		{name: "recreated", kinds: "plain view", do: recreate(1), lost: sinks.Recreated},
		{name: "recreated with more partitions", kinds: "plain view", do: recreate(4), lost: sinks.Recreated},
		{
			name: "recreated and not compacted", kinds: "view", change: withoutCreation, lost: sinks.Recreated,
			do: func(e *edge) {
				e.delete()
				e.createWith(1, "delete")
			},
			says: []string{"a view needs compact"},
			undo: set("cleanup.policy", "compact"),
		},
		{name: "purged", kinds: "plain view", do: purge(2), lost: sinks.Purged},
		{name: "partly purged", kinds: "plain view", do: purge(1), lost: sinks.Purged},
		{
			name: "takes smaller batches", kinds: "plain view",
			do: set("max.message.bytes", "2500"), undo: set("max.message.bytes", "1048588"),
		},
		{
			name: "more partitions", kinds: "plain view", do: func(e *edge) {
				answer, err := admin(e.t, e.c).CreatePartitions(e.t.Context(), 2, e.topic)
				must(e.t, err)
				must(e.t, answer.Error())
			},
		},
		{
			name: "a right is taken and given back", kinds: "plain view", change: withoutCreation, asUser: true,
			do: func(e *edge) {
				e.revoke(edgeUser, write(e))
				e.refusing(kgo.SeedBrokers(e.c.Listener("SASL")), kgo.SASL(plainauth.Auth{User: edgeUser, Pass: password}.AsMechanism()))
			},
			says: []string{"publish to ", "grant the bridge's user Write and Describe on the topic"},
			undo: func(e *edge) { grant(e.t, e.c, edgeUser, write(e)) },
		},
		{
			name: "another password", kinds: "plain view", over: "SASL",
			do:   func(e *edge) { e.password("changed") },
			says: []string{"check the sink's user name and password"},
			undo: func(e *edge) { e.password(password) },
		},
		{
			name: "a certificate of another authority", kinds: "plain view", over: certifiedListener, alone: true,
			do:   func(e *edge) { e.certify("keystore", e.other, "broker.pem") },
			says: []string{"certificate signed by unknown authority"},
			undo: func(e *edge) { e.certify("keystore", e.authority, "broker.pem") },
		},
		{
			name: "the broker trusts another authority", kinds: "plain view", over: certifiedListener, alone: true,
			do:   func(e *edge) { e.certify("truststore", e.other, "ca.pem") },
			says: []string{"check the sink's tls settings"},
			undo: func(e *edge) { e.certify("truststore", e.authority, "ca.pem") },
		},
		{
			name: "the disk is full", kinds: "plain view", alone: true,
			do:   func(e *edge) { must(e.t, e.c.Nodes[0].FillDisk()) },
			says: []string{"connection refused"}, // Kafka ends where it can't write
			undo: func(e *edge) {
				e.c.Nodes[0].Kill()
				must(e.t, e.c.Nodes[0].Start())
			},
		},
		{name: "slow by 1 s", kinds: "plain view", do: slow(time.Second), undo: slow(0)},
		{
			name: "slow by 5 s", kinds: "plain view", do: slow(5 * time.Second),
			says: []string{"no broker answered"}, undo: slow(0),
		},
		{
			name: "slow by 20 s", kinds: "plain view", do: slow(20 * time.Second),
			says: []string{"no broker answered"}, undo: slow(0),
		},
		{
			name: "the broker is killed", kinds: "plain view", alone: true,
			do:   func(e *edge) { e.c.Nodes[0].Kill() },
			says: []string{"connection refused"},
			undo: func(e *edge) { must(e.t, e.c.Nodes[0].Start()) },
		},
		{
			name: "another broker leads", kinds: "plain view", alone: true, three: true,
			do: func(e *edge) {
				testkit.Eventually(e.t, "another broker leads", func() bool {
					return moveOne(e.t.Context(), admin(e.t, e.c), e.topic) > 0
				})
			},
		},
		{
			name: "fewer copies than it wants", kinds: "plain view", alone: true, three: true,
			do: func(e *edge) {
				e.set("min.insync.replicas", "3")
				e.c.Nodes[2].Kill()
			},
			says: []string{"Not Enough Replicas"},
			undo: func(e *edge) { must(e.t, e.c.Nodes[2].Start()) },
		},
		{
			name: "the quorum is lost", kinds: "plain view", alone: true, three: true,
			do: func(e *edge) {
				for _, n := range e.c.Nodes[1:] {
					n.Kill()
				}
			},
			says: []string{"publish to ", "connection refused|start those that are gone"},
			undo: func(e *edge) {
				for _, n := range e.c.Nodes[1:] {
					must(e.t, n.Start())
				}
			},
		},
	}
}

// TestEdges is what an administrator does to a topic while the sink runs: what is said within 20
// seconds, and that all is stored within a minute of the cause's end.
func TestEdges(t *testing.T) {
	needJars(t)
	one := startAuthorizing(t, 1)
	waitReady(t, one)
	three := sync.OnceValue(func() *kafkatest.Cluster {
		c, err := kafkatest.Start(kafkatest.Options{Nodes: 3, Dir: filepath.Join(dir, "edges"), Lib: lib})
		must(t, err)
		t.Cleanup(c.Close)
		waitReady(t, c)
		return c
	})
	another := sync.OnceValue(func() *authority {
		a, err := newAuthority(filepath.Join(dir, "other"))
		must(t, err)
		return a
	})
	cells := edgeCells()
	for i := range cells {
		cell := &cells[i]
		for kind := range strings.FieldsSeq(cell.kinds) {
			t.Run(cell.name+", "+kind, func(t *testing.T) {
				e := &edge{
					Edge: &sinktest.Edge{TB: t}, t: t, c: one, topic: fmt.Sprint("edge", i, kind), view: kind == "view",
				}
				switch {
				case cell.three:
					e.c = three()
				case cell.over != "":
					e.c = broker(t)
					e.listener, e.authority, e.other = e.c.Listener(cell.over), certs, another()
				}
				if !cell.alone {
					t.Parallel()
				}
				e.run(cell)
			})
		}
	}
}

func (e *edge) run(cell *edgeCell) {
	t := e.t
	_, err := admin(t, e.c).CreateTopic(t.Context(), 1, 1, nil, e.topic+"x") // the controller is there
	must(t, err)
	options := kafka.Options{Config: kafka.Config{CreateTopics: &kafka.CreateTopics{}}}
	change := cell.change
	if change == nil {
		change = func(*kafka.Options) {}
	}
	if change(&options); options.CreateTopics == nil {
		e.create(1)
	}
	if cell.asUser {
		for _, o := range []kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationRead, kmsg.ACLOperationDescribeConfigs} {
			grant(t, e.c, edgeUser, right{o.String(), e.topic, o, ""})
		}
		withRights := change
		change = func(k *kafka.Options) {
			withRights(k)
			k.Connection.Brokers = []string{e.c.Listener("SASL")}
			k.Connection.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: edgeUser, Password: settings.Secret(password)}
		}
	}
	if cell.over != "" {
		withDefaults := change
		change = func(k *kafka.Options) {
			withDefaults(k)
			k.Connection.Brokers = []string{e.listener}
			if k.Connection.TLS = client(t, ""); cell.over == certifiedListener {
				k.Connection.TLS = client(t, "bridge")
				return
			}
			k.Connection.SASL = &kafka.SASL{Mechanism: "SCRAM-SHA-512", Username: e.topic, Password: password}
		}
		if cell.over != certifiedListener {
			e.password(password)
		}
	}
	e.start(change)
	e.Add("web", 1, 1_000)
	e.Add("api", 1, 1_000)
	e.Want(time.Minute, "web1", "api1")
	e.Inspected()
	cell.do(e)
	loses := func() {
		if cell.lost != "" {
			e.Logs("has lost what", "reason="+cell.lost, "destination="+e.topic+"/0")
		}
	}
	if len(cell.says) == 0 { // the broker may take records until it has deleted the topic
		loses()
	}
	e.Add("web", 2, 5_000)
	wanted := []string{"web2", "api2"}
	if len(cell.says) > 0 {
		e.Says(cell.says...)
	} else {
		e.Want(sinktest.Noticed, "web2")
		wanted = wanted[1:]
	}
	if cell.undo != nil {
		cell.undo(e)
	}
	if len(cell.says) > 0 {
		loses()
	}
	e.Add("api", 2, 1_000)
	e.Want(time.Minute, wanted...)
	e.IsWell()
	var all []string
	for _, r := range readAll(t, e.c, e.topic) {
		all = append(all, header(r, "ce_name")+header(r, "ce_resourceversion"))
	}
	text := strings.Join(all, " ")
	wasLost := len(cell.says) > 0 && cell.lost != "" // the deleted topic may have taken it
	if strings.Count(text, "web2") != 1 && !wasLost || strings.Count(text, "api2") != 1 {
		t.Errorf("stored: %s", text)
	}
}

// What is done to a topic while no sink is open is noticed: of a view without an event.
func TestChangedWhileDown(t *testing.T) {
	c := broker(t)
	truncate := func(e *edge) {
		e.delete()
		e.create(1)
		e.removeRow()
	}
	purge := func(e *edge) { e.deleteRecords(1) }
	for name, cell := range map[string]struct {
		do    func(*edge)
		want  string
		event bool // it is noticed with the next event
	}{
		"view deleted":          {(*edge).delete, sinks.Recreated, false},
		"view recreated":        {truncate, sinks.Truncated, false},
		"view purged":           {purge, sinks.Purged, false},
		"view with a removal":   {(*edge).removeRow, sinks.Unverified, false},
		"plain topic deleted":   {(*edge).delete, sinks.Recreated, true},
		"plain topic recreated": {truncate, sinks.Truncated, true},
		"plain topic purged":    {purge, sinks.Purged, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &edge{t: t, c: c, topic: strings.ReplaceAll(name, " ", "."), view: strings.HasPrefix(name, "view")}
			open := func(position []byte) *kafka.Sink {
				s := openSink(t, c, func(k *kafka.Options) {
					k.Topic, k.View, k.Tombstones = e.topic, e.view, e.view
					k.CreateTopics.Partitions = 1
					if e.view {
						k.CreateTopics.Config = map[string]string{"cleanup.policy": "compact"}
					}
				})
				must(t, s.ReadBack(t.Context(), position, func(string) {}))
				return s
			}
			first := open(nil)
			publishAs(t, first, sinktest.NewEvent("web", 1, 300))
			publishAs(t, first, sinktest.NewEvent("api", 1, 300))
			first.Inspect(t.Context())
			position := first.Position()
			must(t, first.Close())
			cell.do(e)
			began := time.Now()
			second := open(position)
			if cell.event {
				publishAs(t, second, sinktest.NewEvent("web", 2, 300))
			}
			var found []sinks.Loss
			for len(found) == 0 && time.Since(began) < time.Minute {
				found = second.Inspect(t.Context())
			}
			if took := time.Since(began); len(found) != 1 || found[0].Reason != cell.want || took > sinktest.Noticed {
				t.Errorf("within %v: lost %v", took, found)
			}
		})
	}
}

// removeRow is what another client does.
func (e *edge) removeRow() {
	client, err := kgo.NewClient(kgo.SeedBrokers(e.c.Addresses()...), kgo.DefaultProduceTopic(e.topic))
	must(e.t, err)
	defer client.Close()
	record := &kgo.Record{Key: []byte(sinktest.NewEvent("web", 1, 0).PartitionKey)}
	must(e.t, client.ProduceSync(e.t.Context(), record).FirstErr())
}

// A topic that has lost what it had acknowledged says so in a gap: one that was deleted, and one of
// which records were deleted.
func TestLostGap(t *testing.T) {
	const topic = "k8s.test.pods"
	c := broker(t)
	p := newPipeline(t, c, func(k *kafka.Options) {
		k.CreateTopics = &kafka.CreateTopics{Partitions: 1, ReplicationFactor: 1}
	})
	p.server.Create("shop/web", nil)
	p.start()
	p.settle(time.Minute)
	e := &edge{Edge: &sinktest.Edge{TB: t}, t: t, c: c, topic: topic}
	end := func() int64 { // -1 while there is no topic
		ends, err := admin(t, c).ListEndOffsets(t.Context(), topic)
		if o, ok := ends.Lookup(topic, 0); ok && err == nil && o.Err == nil {
			return o.Offset
		}
		return -1
	}
	lastGap := func() int64 { // its offset
		at := int64(-1)
		for _, r := range readAll(t, c, topic) {
			if strings.HasSuffix(header(r, "ce_type"), "informer.gap") && strings.Contains(string(r.Value), `"reason":"lost"`) {
				at = r.Offset
			}
		}
		return at
	}
	remake := func() {
		e.delete()
		testkit.Eventually(t, "it is gone", func() bool { return end() < 0 })
		testkit.Eventually(t, "something is stored again", func() bool { return end() > 0 })
	}
	before := int64(-1)
	for _, do := range []func(){remake, func() { e.deleteRecords(1) }} {
		e.Inspected()
		began := time.Now()
		do()
		testkit.Eventually(t, "there is a gap", func() bool { return lastGap() > before })
		if took := time.Since(began); took > sinktest.Noticed {
			t.Errorf("it took %v", took)
		}
		p.server.Update("shop/web", nil)
		p.settle(time.Minute)
		before = lastGap()
	}
	p.stop()
}

// revoke takes a right of a user.
func (e *edge) revoke(user string, r right) {
	e.t.Helper()
	gone, err := admin(e.t, e.c).DeleteACLs(e.t.Context(), kadm.NewACLs().Topics(r.topic).
		ResourcePatternType(kadm.ACLPatternLiteral).Operations(r.operation).Allow("User:"+user).AllowHosts())
	must(e.t, err)
	for _, g := range gone {
		must(e.t, g.Err)
	}
}
