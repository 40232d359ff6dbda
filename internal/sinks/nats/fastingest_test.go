package nats_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Why the sink does not use fast-ingest batches (docs/decisions/0004): a resent batch whose first
// attempt is still in flight through the cluster is acknowledged although nothing of it is stored,
// and what was acknowledged is gone when the leader is. A single message that is resent so gets an
// error, and is sent once more. When this test fails, the server has changed, and the decision can.
func TestFastIngest(t *testing.T) {
	servers := newTestCluster(t)
	js := servers[0].jetStream()
	eventually(t, "stream", func() error {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: "K8S", Subjects: []string{"k8s.>"}, Replicas: 3, Duplicates: 2 * time.Minute,
			AllowBatchPublish: true,
		})
		return err
	})
	leader, followers := leaderOf(t, servers)
	nc := leader.client()
	for _, follower := range followers {
		follower.stop()
	}
	if err := singleTwice(t, nc); !strings.Contains(fmt.Sprint(err), "in process") {
		t.Errorf("a single message that is resent while it is in flight: %v, want the error "+
			"that it is in process", err)
	}
	if count := batchCount(t, nc, "first", 2*time.Second); count != 0 {
		t.Fatalf("%d messages of a batch are acknowledged without a quorum", count)
	}
	acknowledged := batchCount(t, nc, "second", 5*time.Second)
	leader.stop()
	for _, follower := range followers {
		follower.start()
	}
	stored := -1
	eventually(t, "stream without the old leader", func() error {
		js, err := jetstream.New(followers[0].client())
		if err != nil {
			return err
		}
		stream, err := js.Stream(t.Context(), "K8S")
		if err == nil {
			stored = int(stream.CachedInfo().State.Msgs)
		}
		return err
	})
	leader.start() // so that it can be stopped
	t.Logf("%d messages were acknowledged, %d are stored", acknowledged, stored)
	if acknowledged == 0 || stored >= acknowledged {
		t.Errorf("%d messages were acknowledged and %d are stored: fast ingest keeps its word now",
			acknowledged, stored)
	}
}

func leaderOf(t *testing.T, servers [3]*testServer) (leader *testServer, followers []*testServer) {
	t.Helper()
	eventually(t, "leader", func() error {
		leader, followers = nil, nil
		for _, ts := range servers {
			if ts.s.JetStreamIsStreamLeader("$G", "K8S") {
				leader = ts
			} else {
				followers = append(followers, ts)
			}
		}
		if leader == nil {
			return errors.New("none")
		}
		return nil
	})
	return leader, followers
}

// singleTwice sends one message, and again before the first can be stored; it returns the server's
// answer to the second.
func singleTwice(t *testing.T, nc *natsclient.Conn) error {
	t.Helper()
	m := natsclient.NewMsg("k8s.single")
	m.Header.Set("Nats-Msg-Id", "single")
	if err := nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	reply, err := nc.RequestMsg(m, 20*time.Second)
	if err != nil {
		return err
	}
	return errors.New(string(reply.Data))
}

// batchCount sends the same five messages as a fast-ingest batch and says how many of them the
// server acknowledges.
func batchCount(
	t *testing.T, nc *natsclient.Conn, batch string, patience time.Duration,
) (count int) {
	t.Helper()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox + ".>")
	if err != nil {
		t.Fatal(err)
	}
	const messages = 5
	for i := 1; i <= messages; i++ {
		operation := 1 // append
		switch i {
		case 1:
			operation = 0 // start
		case messages:
			operation = 2 // commit
		}
		m := natsclient.NewMsg(fmt.Sprint("k8s.batch.", i))
		m.Header.Set("Nats-Msg-Id", fmt.Sprint("batch-", i))
		m.Reply = fmt.Sprintf("%s.%s.10.fail.%d.%d.$FI", inbox, batch, i, operation)
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(patience); ; {
		m, err := answers.NextMsg(time.Until(deadline))
		if err != nil {
			return count
		}
		var answer struct {
			Type  string `json:"type"`
			Seq   int    `json:"seq"`
			Count int    `json:"count"`
		}
		_ = json.Unmarshal(m.Data, &answer)
		if answer.Type == "ack" {
			count = max(count, answer.Seq)
		}
		if count = max(count, answer.Count); count == messages {
			return count
		}
	}
}
