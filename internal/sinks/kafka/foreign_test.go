package kafka_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

// The address of a broker that has moved may be another's by now. That is no missing right, and
// passes.

// The end of the log is read back though another server answers in between.
func TestReadBackByAnotherServer(t *testing.T) {
	c, n := newCluster(t), new(network)
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	position := dying.Position()
	publish(t, dying, podEvents("web", 4, 5)...)

	var said bytes.Buffer
	s := openSink(t, c, n.use, logTo(&said))
	n.cut(c, kmsg.ListOffsets, 2)
	var found []string
	if err := s.ReadBack(t.Context(), position,
		func(id string) { found = append(found, id) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"workloads/uid-web/4", "workloads/uid-web/5"}; !slices.Equal(found, want) {
		t.Errorf("read back %v, want %v", found, want)
	}
	if strings.Contains(said.String(), "grant") {
		t.Errorf("a right is missed: %s", &said)
	}
	if left := n.foreign.Load(); left > 0 {
		t.Errorf("%d connections more should have reached something else", left)
	}
}

func TestReadBackCertificate(t *testing.T) {
	c, n := newCluster(t), new(network)
	dying := openSink(t, c)
	publish(t, dying, podEvents("web", 1, 3)...)
	refuse := false
	s := openSink(t, c, func(c *kafka.Options) {
		c.Connection.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if refuse {
				return nil, tls.RecordHeaderError{Msg: "first record does not look like a TLS " +
					"handshake"}
			}
			return n.dial(ctx, network, address)
		}
	})
	refuse = true
	n.setDown(true)
	n.setDown(false)
	err := s.ReadBack(t.Context(), dying.Position(), func(string) {})
	if sinks.Classify(err) != sinks.Reconnect ||
		!strings.Contains(err.Error(), "check the sink's tls settings") {
		t.Errorf("Recall gave %v", err)
	}
}

// A late batch is found though another server answers in between.
func TestLateBatchByAnotherServer(t *testing.T) {
	for name, at := range map[string]struct {
		first []*sinks.Message
		asked kmsg.Key // by what the place is looked at
	}{
		"when as much is sent, of which some is other": {append(podEvents("other", 1, 1),
			podEvents("web", 4, 4)...), kmsg.Fetch},
		"when less is sent": {podEvents("web", 4, 4), kmsg.ListOffsets},
	} {
		t.Run(name, func(t *testing.T) {
			c, position, release := heldBatch(t)
			n := new(network)
			s := resumed(t, c, position, n.use)
			release()
			n.cut(c, at.asked, 2)
			publish(t, s, at.first...)
			requireEachOnce(t, c, s, at.first)
		})
	}
}

// A forgotten producer is recovered though another server answers in between.
func TestForgottenByAnotherServer(t *testing.T) {
	c, n := newCluster(t), new(network)
	s := openSink(t, c, n.use)
	publish(t, s, podEvents("web", 1, 2)...)
	n.lost = func() {
		produceFault(c, kerr.UnknownProducerID, 1)
		n.cut(c, kmsg.ListOffsets, 2)
	}
	n.loseAnswers.Store(1)
	publish(t, s, podEvents("web", 3, 4)...)
	requireLog(t, c, wantIDs("web", 1, 4))
}

// publishUntilBlocked begins to publish, and waits until the sink is blocked. It gives the reason,
// and a function that wants that to pass, and everything stored.
func publishUntilBlocked(
	t *testing.T, s *kafka.Sink, messages []*sinks.Message,
) (why string, pass func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Publish(t.Context(), messages)
	}()
	testkit.Eventually(t, "the sink is blocked", func() bool {
		err := s.Blocked()
		if err != nil {
			why = err.Error()
		}
		return err != nil
	})
	return why, func() {
		t.Helper()
		<-done
		requireStored(t, messages)
		if why := s.Blocked(); why != nil {
			t.Errorf("still blocked: %v", why)
		}
	}
}

func TestBlockedByAnotherServer(t *testing.T) {
	c, n := newCluster(t), new(network)
	s := openSink(t, c, n.use)
	publish(t, s, podEvents("web", 1, 1)...)
	n.cut(c, kmsg.Produce, 6)
	messages := podEvents("web", 2, 3)
	why, done := publishUntilBlocked(t, s, messages)
	if !strings.Contains(why, "not of Kafka's protocol") ||
		!strings.Contains(why, podsTopic+"/0") {
		t.Errorf("blocked for %q", why)
	}
	done()
	requireLog(t, c, wantIDs("web", 1, 3))
}

func TestBlockedByDeletedTopic(t *testing.T) {
	c := newCluster(t)
	s := openSink(t, c)
	publish(t, s, podEvents("web", 1, 1)...)
	if err := c.DeleteTopic(podsTopic); err != nil {
		t.Fatal(err)
	}
	messages := podEvents("web", 2, 3)
	why, done := publishUntilBlocked(t, s, messages)
	if !strings.Contains(why, podsTopic) ||
		!strings.Contains(why, "create it again") {
		t.Errorf("blocked for %q", why)
	}
	if err := c.CreateTopic(podsTopic, 1, nil); err != nil {
		t.Fatal(err)
	}
	done()
}

func TestCheckOfStartingBroker(t *testing.T) {
	c := newCluster(t)
	starting := c.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.InitProducerID},
		Err:  kerr.CoordinatorLoadInProgress, Count: 2,
	})
	topics, err := newSink(t, c).Check(t.Context(), []string{podsTopic})
	if err != nil || len(topics) > 0 || starting.Hits() != 2 {
		t.Errorf("topics %v, connect %v after %d refusals", topics, err, starting.Hits())
	}
}
