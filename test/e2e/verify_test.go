package e2e_test

import (
	"encoding/json"
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

// verifyReport is what is read of the report of bridge verify.
type verifyReport struct {
	Faults    map[string]int
	Found     []struct{ Kind, Object, Version, What string }
	Resources []struct{ Informer, Resource, Chain string }
	Notes     []string
}

// chainChecked is the chain of a resource in which every version names the one before it. An update
// without previous is no fault, but then the chain is not checked.
const chainChecked = "checked"

// verified checks what a sink holds with the bridge's own command: the chain of versions, order,
// repeats and data of every object, and the final state against the API server.
func (l *lab) verified(b *harness.Bridge, what string, r reader) {
	l.t.Helper()
	if problem := l.verify(b, r); problem != "" {
		l.t.Errorf("bridge verify, %s:\n%s", what, problem)
	}
}

// verify gives what is wrong in a stream that is not selective, "" for nothing.
func (l *lab) verify(b *harness.Bridge, r reader) string {
	l.t.Helper()
	v, err := l.report(b, r)
	return problemsOf(v, err)
}

func problemsOf(v *verifyReport, err error) string {
	var problems []string
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, f := range v.Found[:min(len(v.Found), 20)] {
		problems = append(problems, fmt.Sprintf("%s %s %s: %s", f.Kind, f.Object, f.Version, f.What))
	}
	if len(v.Resources) == 0 {
		problems = append(problems, "the stream has no resource")
	}
	for _, x := range v.Resources {
		if x.Chain != chainChecked {
			problems = append(problems, fmt.Sprintf("the chain of %s of informer %s: %s", x.Resource, x.Informer, x.Chain))
		}
	}
	if len(problems) > 0 {
		problems = append(problems, v.Notes...)
	}
	return strings.Join(problems, "\n")
}

// report is what bridge verify reports of a stream. It has an error when something is wrong.
func (l *lab) report(b *harness.Bridge, r reader) (*verifyReport, error) {
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
	out, err := b.Output(l.ctx, "verify", "--from", from, "--against-cluster", "-o", "json")
	v := new(verifyReport)
	if jsonErr := json.Unmarshal([]byte(out), v); jsonErr != nil {
		l.t.Fatalf("bridge verify: %v: %v\n%s", err, jsonErr, out)
	}
	return v, err
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
	v, err := l.report(b, stream)
	if err == nil || len(v.Found) != 1 || v.Found[0].Kind != "break" || v.Found[0].Version != updates[3].Attribute("resourceversion") {
		t.Errorf("an event was deleted from the stream; bridge verify says:\n%s", problemsOf(v, err))
	}
	l.stop(b)
}
