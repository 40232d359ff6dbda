package kafkatest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

// right is one that docs/security.md gives to the bridge's user.
type right struct {
	name      string
	topic     string
	operation kmsg.ACLOperation
	says      string // without it
}

// rightsOf are those for a topic of events, one of dead letters, and one that the sink makes.
func rightsOf(events, dead, made string) []right {
	return []right{
		{"Write", events, kmsg.ACLOperationWrite, "publish to " + events + "/|Write and Describe on the topic"},
		{"Write of dead letters", dead, kmsg.ACLOperationWrite, `topic "` + dead + `"|Write and Describe on the topic`},
		{"Read", events, kmsg.ACLOperationRead, "read " + events + "/|grant the bridge's user Read on the topic"},
		{"DescribeConfigs", events, kmsg.ACLOperationDescribeConfigs, "topic=" + events + "|grant the bridge's user DescribeConfigs on the topic"},
		{"Create", made, kmsg.ACLOperationCreate, `create topic "` + made + `"|grant the bridge's user Create on the topic`},
		{"Write to a new topic", made, kmsg.ACLOperationWrite, ""},
	}
}

// With the rights of docs/security.md the sink works under Apache Kafka's own authorizer. Without
// one of them it says which, and where.
func TestRights(t *testing.T) {
	needJars(t)
	withouts := []string{"nothing"}
	for _, r := range rightsOf("", "", "") {
		if r.says != "" {
			withouts = append(withouts, r.name)
		}
	}
	c := startAuthorizing(t, len(withouts))
	waitReady(t, c)
	for i, without := range withouts {
		t.Run("without "+without, func(t *testing.T) {
			events, dead, made := fmt.Sprint("events", i), fmt.Sprint("dead", i), fmt.Sprint("made", i)
			_, err := admin(t, c).CreateTopics(t.Context(), 1, 1, nil, events, dead)
			must(t, err)
			var says string
			for _, r := range rightsOf(events, dead, made) {
				if r.name == without {
					says = r.says
				} else {
					grant(t, c, userOf(i), r)
				}
			}
			text, err := live(t, c, userOf(i), events, dead, made)
			if without == "nothing" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for part := range strings.SplitSeq(says, "|") {
				if !strings.Contains(text, part) {
					t.Errorf("%q is not in\n%s", part, text)
				}
			}
			if without != "DescribeConfigs" && err == nil {
				t.Error("it works without")
			}
		})
	}
}

func userOf(i int) string { return fmt.Sprint("bridge", i) }

// startAuthorizing starts a broker that gives its users no right. Whoever comes by the plain
// listener may do everything.
func startAuthorizing(t *testing.T, users int) *kafkatest.Cluster {
	t.Helper()
	jaas := "org.apache.kafka.common.security.plain.PlainLoginModule required"
	for i := range users {
		jaas += fmt.Sprintf(" user_%s=%q", userOf(i), password)
	}
	c, err := kafkatest.Start(kafkatest.Options{
		Dir: filepath.Join(t.TempDir(), "rights"), Lib: lib, Listeners: map[string]string{"SASL": "SASL_PLAINTEXT"},
		Properties: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS",
			"listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
			"listener.name.sasl.plain.sasl.jaas.config":  jaas + ";",
			"allow.everyone.if.no.acl.found":             "false",
		},
	})
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// grant gives a user a right, and waits until the broker knows it.
func grant(t *testing.T, c *kafkatest.Cluster, user string, r right) {
	t.Helper()
	acl := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(r.topic).ResourcePatternType(kadm.ACLPatternLiteral).
			Operations(r.operation).Allow("User:" + user).AllowHosts()
	}
	made, err := admin(t, c).CreateACLs(t.Context(), acl())
	must(t, err)
	for _, m := range made {
		must(t, m.Err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		known, err := admin(t, c).DescribeACLs(t.Context(), acl())
		must(t, err)
		if len(known) > 0 && len(known[0].Described) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has no %s on %s", user, r.name, r.topic)
		}
	}
}

// live does what a sink does with its topics. It returns what went wrong, and that with what the
// sink has logged.
func live(
	t *testing.T, c *kafkatest.Cluster, user, events, dead, made string,
) (text string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var log testkit.Buffer
	open := func(change func(*kafka.Options)) *kafka.Sink {
		return openSink(t, c, func(k *kafka.Options) {
			k.Connection.Brokers = []string{c.Listener("SASL")}
			k.Connection.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: user, Password: settings.Secret(password)}
			k.Topic, k.DeadLetterTopic = events, dead
			k.CreateTopics = nil
			k.Log = slog.New(slog.NewTextHandler(&log, nil))
		}, change)
	}
	s := open(func(*kafka.Options) {})
	m := &sinks.Message{Event: sinktest.NewEvent("web", 1, 500)}
	_, lane := s.Lane(ctx, m.Event)
	s.Publish(ctx, []*sinks.Message{m})
	_, look := s.FindEarlierRun(ctx, m.Event, func(sinks.Trace) bool { return false })
	letter := s.DeadLetter(ctx, m.Event, errors.New("refused"), 1)
	_, create := open(func(k *kafka.Options) {
		k.Topic, k.CreateTopics = made, &kafka.CreateTopics{Partitions: 1, ReplicationFactor: 1}
	}).Lane(ctx, m.Event)
	if err = errors.Join(lane, m.Err, look, letter, create); err != nil {
		return log.String() + err.Error(), err
	}
	return log.String(), nil
}
