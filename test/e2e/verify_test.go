package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// verified checks what a sink holds with the bridge's own command: the chain of versions, order,
// repeats and data of every object, and the final state against the API server.
func (l *lab) verified(b *harness.Bridge, what string, r reader) {
	l.t.Helper()
	if problem := l.verify(b, r); problem != "" {
		l.t.Errorf("bridge verify, %s:\n%s", what, problem)
	}
}

// verify gives what bridge verify prints when something is wrong, "" when nothing is.
func (l *lab) verify(b *harness.Bridge, r reader) string {
	l.t.Helper()
	var from string
	switch r := r.(type) {
	case *read.JetStream:
		from = r.URL + "/" + r.Stream
	case *read.Kafka:
		from = "kafka://" + strings.Join(r.Brokers, ",") + "/" + r.Prefix + "*"
	default:
		l.t.Fatalf("no address of a %T is known", r)
	}
	out, err := b.Output(l.ctx, "verify", "--from", from, "--against-cluster")
	if err != nil {
		return err.Error() + out
	}
	return ""
}

// What verified is worth: a stream from which one message is deleted is not passed over.
func TestVerify(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	maps := truth.Core("configmaps", l.namespace)
	ledger := l.witness(maps)
	b := l.bridge("bridge", "informers: [{name: app, resources: [configmaps], namespaces: [\"${NS}\"]}]\n"+embedded)
	l.start(b)
	l.createConfigMap("changed", "1")
	for i := range 5 {
		l.updateConfigMap("changed", fmt.Sprint(i))
	}
	l.createConfigMap("deleted", "1")
	l.deleteConfigMap("deleted")
	stream := jetStream(b)
	events := l.complete("JetStream", stream, ledger, check.Options{Informers: informerOf("app", maps)})
	l.verified(b, "a whole stream", stream)

	updates := slices.DeleteFunc(events, func(e read.Event) bool { return e.Attribute("name") != "changed" || e.Op() != "updated" })
	conn, err := nats.Connect(b.NATS)
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	k8s, err := js.Stream(l.ctx, stream.Stream)
	must(t, err)
	must(t, k8s.DeleteMsg(l.ctx, updates[2].Place))
	if problem := l.verify(b, stream); !strings.Contains(problem, "wrong: 1 break\n") || !strings.Contains(problem, "  "+updates[3].Attribute("resourceversion")+"  ") {
		t.Errorf("an event was deleted from the stream; bridge verify says:\n%s", problem)
	}
	l.stop(b)
}
