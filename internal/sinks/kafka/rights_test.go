package kafka_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

// With the rights of docs/security.md the sink works. Without one of them it says which, and where.
func TestRights(t *testing.T) {
	const made, dead = "made", "dead"
	type right struct {
		topic     string
		operation kmsg.ACLOperation
		says      string // without it
	}
	rights := map[string]right{
		"Write":                 {podsTopic, kmsg.ACLOperationWrite, "publish to k8s.test.pods/0|Write and Describe on the topic"},
		"Write of dead letters": {dead, kmsg.ACLOperationWrite, `topic "dead"|Write and Describe on the topic`},
		"Read":                  {podsTopic, kmsg.ACLOperationRead, "read k8s.test.pods/0 from 0|grant the bridge's user Read on the topic"},
		"DescribeConfigs":       {podsTopic, kmsg.ACLOperationDescribeConfigs, "topic=k8s.test.pods|grant the bridge's user DescribeConfigs on the topic"},
		"Create":                {made, kmsg.ACLOperationCreate, `create topic "made"|grant the bridge's user Create on the topic`},
		"Write to a new topic":  {made, kmsg.ACLOperationWrite, ""}, // Describe comes with it
	}
	for without, missing := range rights {
		if missing.says == "" {
			without = "none"
		}
		t.Run("without "+without, func(t *testing.T) {
			var acls []kfake.ACL
			for name, r := range rights {
				if name != without {
					acls = append(acls, kfake.ACL{
						Resource: kmsg.ACLResourceTypeTopic, Pattern: kmsg.ACLResourcePatternTypeLiteral,
						Name: r.topic, Operation: r.operation, Allow: true,
					})
				}
			}
			c := newCluster(t, kfake.EnableSASL(), kfake.EnableACLs(),
				kfake.SeedTopics(1, podsTopic, dead), kfake.User("PLAIN", "bridge", "secret", acls...))
			var log testkit.Buffer
			open := func(change func(*kafka.Options)) *kafka.Sink {
				return openSink(t, c, change, func(c *kafka.Options) {
					c.Connection.SASL = &kafka.SASL{Mechanism: "PLAIN", Username: "bridge", Password: "secret"}
					c.DeadLetterTopic = dead
					c.Log = slog.New(slog.NewTextHandler(&log, nil))
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			s := open(func(*kafka.Options) {})
			m := podEvents("web", 1, 1)[0]
			_, lane := s.Lane(ctx, m.Event)
			s.Publish(ctx, []*sinks.Message{m})
			_, look := s.FindEarlierRun(ctx, m.Event, func(sinks.Trace) bool { return false })
			letter := s.DeadLetter(ctx, m.Event, errors.New("refused"), 1)
			_, create := open(func(c *kafka.Options) {
				c.Topic, c.CreateTopics = made, &kafka.CreateTopics{Partitions: 1}
			}).Lane(ctx, m.Event)

			err := errors.Join(lane, m.Err, look, letter, create)
			if missing.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			text := log.String()
			if err != nil {
				text += err.Error()
			}
			for part := range strings.SplitSeq(missing.says, "|") {
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
