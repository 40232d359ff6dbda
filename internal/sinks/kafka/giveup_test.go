package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

// outcomes is a Settler that passes on how each item was settled.
type outcomes chan string

func (o outcomes) Settle(items []*publisher.Item) {
	for _, it := range items {
		o <- it.Message.Event.Name + it.Message.Event.ResourceVersion + " " + string(it.Outcome())
	}
}

// A record that its partition does not take is given up after some attempts. The next one is stored
// when the partition takes records again, and the dead letter has the broker's reason.
func TestGiveUp(t *testing.T) {
	c := newCluster(t, kfake.SeedTopics(1, "dead"))
	s := newSink(t, c, func(o *kafka.Options) { o.DeadLetterTopic = "dead" })
	p, err := publisher.New(publisher.Config{
		Sink: s, Name: "kafka", PublishTimeout: 200 * time.Millisecond,
		Retry: publisher.Retry{Initial: time.Millisecond, MaxAttempts: 3},
	})
	testkit.OK(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	<-p.Opened()
	fault := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: podsTopic, Err: kerr.NotEnoughReplicas, Count: -1,
	})
	settled := make(outcomes)
	add := func(version int) {
		testkit.OK(t, p.Add(t.Context(), []*publisher.Item{
			{Message: sinks.Message{Event: podEvent("web", version)}, Settler: settled},
		}))
	}
	add(1)
	if got := <-settled; got != "web1 dead-letter" {
		t.Errorf("got %s", got)
	}
	fault.Remove()
	add(2)
	if got := <-settled; got != "web2 acknowledged" {
		t.Errorf("got %s", got)
	}
	cancel()
	testkit.OK(t, <-ended)
	letters := readAll(t, c, "dead")
	reason, _ := header(letters[0], "ce_deadletterreason")
	if got := ids(letters); !slices.Equal(got, wantIDs("web", 1, 1)) ||
		!strings.HasPrefix(reason, "given up after 3 attempts in ") || !strings.Contains(reason, "NOT_ENOUGH_REPLICAS") {
		t.Errorf("dead letters %q, because of %s", got, reason)
	}
	if got := ids(readAll(t, c, podsTopic)); got[len(got)-1] != wantIDs("web", 2, 2)[0] {
		t.Errorf("the topic has %q", got)
	}
}
