package kafkatest_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	plainauth "github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

// edge is a sink that runs into a topic, where an administrator changes something.
type edge struct {
	*sinktest.Edge
	t     *testing.T
	c     *kafkatest.Cluster
	topic string
}

// start opens a sink.
func (e *edge) start(change func(*kafka.Options)) {
	e.Start(newSink(e.t, e.c, func(k *kafka.Options) {
		k.Topic, k.Log = e.topic, e.Logger()
		k.CreateTopics = &kafka.CreateTopics{Partitions: 1, ReplicationFactor: 1}
		k.Connection.Timeout = 5 * time.Second
	}, change), 10*time.Second)
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
	testkit.Eventually(e.t, "the topic is created", func() bool {
		answer, err := admin(e.t, e.c).CreateTopic(e.t.Context(), partitions, 1, nil, e.topic)
		return err == nil && answer.Err == nil
	})
}

func (e *edge) deleteRecords(before int64) error {
	offsets := kadm.Offsets{}
	offsets.AddOffset(e.topic, 0, before, -1)
	answer, err := admin(e.t, e.c).DeleteRecords(e.t.Context(), offsets)
	return cmp.Or(err, answer.Error())
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

// TestEdges is what an administrator does to a topic while the sink runs: what is said within 20
// seconds, and that all is stored within a minute of the cause's end.
func TestEdges(t *testing.T) {
	needJars(t)
	const user = "bridge0"
	c := startAuthorizing(t, 1)
	waitReady(t, c)
	nothing := func(*edge) {}
	plain := func(*kafka.Options) {}
	withoutCreation := func(k *kafka.Options) { k.CreateTopics = nil }
	view := func(k *kafka.Options) {
		k.View, k.Tombstones = true, true
		k.CreateTopics.Config = map[string]string{"cleanup.policy": "compact"}
	}
	asUser := func(k *kafka.Options) {
		k.Connection.Brokers = []string{c.Listener("SASL")}
		k.Connection.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: user, Password: settings.Secret(password)}
		k.CreateTopics = nil
	}
	recreate := func(partitions int32) func(*edge) {
		return func(e *edge) {
			e.delete()
			e.create(partitions)
		}
	}
	write := func(e *edge) right { return right{"Write", e.topic, kmsg.ACLOperationWrite, ""} }
	for i, cell := range []struct {
		name   string
		change func(*kafka.Options)
		do     func(*edge)
		says   []string // while web can't be stored
		undo   func(*edge)
		logs   []string
		serial bool
	}{
		{"deleted", plain, (*edge).delete, nil, nothing, []string{"has lost what", "reason=recreated", "acknowledged=2"}, false},
		{
			"deleted for good", withoutCreation, (*edge).delete,
			[]string{"create it"},
			func(e *edge) { e.create(1) },
			[]string{"has lost what", "reason=recreated", "acknowledged=2"},
			false,
		},
		{"recreated", plain, recreate(1), nil, nothing, []string{"has lost what", "reason=recreated", "acknowledged=2"}, false},
		{
			"recreated with more partitions", plain, recreate(4), nil, nothing,
			[]string{"has lost what", "reason=recreated", "acknowledged=2"},
			false,
		},
		{
			"its records are deleted, of a view", view, func(e *edge) {
				e.set("cleanup.policy", "compact,delete") // of a topic that is only compacted they can't be
				testkit.Eventually(e.t, "they may be deleted", func() bool {
					return e.deleteRecords(1) == nil
				})
			}, nil, nothing, []string{"has lost what", "reason=purged", "ends_at=1"}, false,
		},
		{"deleted, of a view", view, (*edge).delete, nil, nothing, []string{"has lost what", "reason=recreated", "acknowledged=2"}, false},
		{
			"more partitions", plain, func(e *edge) {
				answer, err := admin(e.t, e.c).CreatePartitions(e.t.Context(), 2, e.topic)
				must(e.t, err)
				must(e.t, answer.Error())
			}, nil, nothing, nil, false,
		},
		{
			"a right is taken and given back", asUser, func(e *edge) {
				e.revoke(user, write(e))
				e.refusing(kgo.SeedBrokers(c.Listener("SASL")), kgo.SASL(plainauth.Auth{User: user, Pass: password}.AsMechanism()))
			},
			[]string{"publish to ", "grant the bridge's user Write and Describe on the topic"},
			func(e *edge) { grant(e.t, e.c, user, write(e)) }, nil, false,
		},
		{
			"the broker is killed", plain, func(e *edge) { e.c.Nodes[0].Kill() },
			[]string{"connection refused"},
			func(e *edge) { must(e.t, e.c.Nodes[0].Start()) }, nil, true,
		},
	} {
		t.Run(cell.name, func(t *testing.T) {
			topic := fmt.Sprint("edge", i)
			if !cell.serial {
				t.Parallel()
			}
			_, err := admin(t, c).CreateTopic(t.Context(), 1, 1, nil, topic+"x") // the controller is there
			must(t, err)
			e := &edge{&sinktest.Edge{TB: t}, t, c, topic}
			options := kafka.Options{Config: kafka.Config{CreateTopics: &kafka.CreateTopics{}}}
			if cell.change(&options); options.CreateTopics == nil {
				e.create(1)
				for _, r := range []right{write(e), {"Read", topic, kmsg.ACLOperationRead, ""}, {"DescribeConfigs", topic, kmsg.ACLOperationDescribeConfigs, ""}} {
					grant(t, c, user, r)
				}
			}
			e.start(cell.change)
			e.Add("web", 1, 1_000)
			e.Add("api", 1, 1_000)
			e.Want(time.Minute, "web1", "api1")
			e.Inspected()
			cell.do(e)
			if len(cell.says) == 0 && len(cell.logs) > 0 { // the broker may take records until it has deleted the topic
				e.Logs(append(cell.logs, "destination="+topic+"/0")...)
			}
			e.Add("web", 2, 1_000)
			if len(cell.says) > 0 {
				e.Says(cell.says...)
			}
			cell.undo(e)
			if len(cell.logs) > 0 {
				e.Logs(append(cell.logs, "destination="+topic+"/0")...)
			}
			e.Add("api", 2, 1_000)
			e.Want(time.Minute, "web2", "api2")
			e.IsWell()
			var all []string
			for _, r := range readAll(t, c, topic) {
				all = append(all, header(r, "ce_name")+header(r, "ce_resourceversion"))
			}
			text := strings.Join(all, " ")
			wasLost := len(cell.says) > 0 && len(cell.logs) > 0 // the deleted topic may have taken it
			if strings.Count(text, "web2") != 1 && !wasLost || strings.Count(text, "api2") != 1 {
				t.Errorf("stored: %s", text)
			}
		})
	}
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
