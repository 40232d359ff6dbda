package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
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
	Repeats   int
	Cluster   struct{ Resources int }
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

// selective has four sinks of one informer: one has everything, of the others each has a key that
// leaves versions out. The sink of the newest states is too slow for what happens.
const selective = `
informers:
  - name: app
    resources: [configmaps]
    namespaces: ["${NS}"]
    sinks:
      - {name: js}
      - {name: filter, filter: 'meta.name == "a" || op == "updated"'}
      - {name: operations, operations: [added, deleted]}
      - {name: latest, delivery: latest}
sinks:
  - {name: js, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
  - {name: filter, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: filter}, subject: "filter.{name}.{op}"}}
  - {name: operations, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: operations}, subject: "operations.{name}.{op}"}}
  - {name: latest, rateLimit: {perSecond: 20, burst: 1}, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: latest}, subject: "latest.{name}.{op}"}}
`

// A stream that leaves versions out by its configuration raises no false alarm. Its chain and, with
// a filter or with operations, its final state can't be checked, and the report says so. Order,
// repeats and data are checked.
func TestVerifySelective(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	maps := truth.Core("configmaps", l.namespace)
	for _, name := range []string{"a", "b"} {
		l.createConfigMap(name, "0")
	}
	ledger := l.witness(maps)
	b := l.bridge("bridge", selective)
	l.start(b)
	l.each(2, func(i int) {
		name := []string{"a", "b"}[i]
		for range 2 {
			for value := range 10 {
				l.updateConfigMap(name, fmt.Sprint(value+1))
			}
			l.deleteConfigMap(name)
			l.createConfigMap(name, "0")
		}
		for value := range 3 {
			l.updateConfigMap(name, fmt.Sprint(value+1))
		}
	})
	informers := informerOf("app", maps)
	all := aboutObjects(l.complete("JetStream", jetStream(b), ledger, check.Options{Informers: informers}))
	l.verified(b, "the stream that has everything", jetStream(b))

	of := func(key string) *read.JetStream { return &read.JetStream{URL: b.NATS, Stream: key} }
	// holds waits until a stream has these of all events.
	holds := func(key string, isIn func(*read.Event) bool) {
		t.Helper()
		want := idsOf(slices.DeleteFunc(slices.Clone(all), func(e read.Event) bool { return !isIn(&e) }))
		eventually(t, key, testPatience, func() []string {
			events, err := of(key).Refresh(l.ctx)
			must(t, err)
			if got := idsOf(aboutObjects(events)); !slices.Equal(got, want) {
				return []string{fmt.Sprintf("it has %q, want %q", got, want)}
			}
			return nil
		})
	}
	holds("filter", func(e *read.Event) bool { return e.Attribute("name") == "a" || e.Op() == "updated" })
	holds("operations", func(e *read.Event) bool { return e.Op() != "updated" })
	for _, key := range []string{"filter", "operations", "latest"} {
		t.Run(key, func(t *testing.T) {
			l := *l
			l.t = t
			s := of(key)
			l.saysSelective(b, s, key)
			l.plant(b, s, key)
		})
	}
	l.stop(b)
}

// saysSelective wants of a report that nothing is wrong, and that it says what was not checked.
func (l *lab) saysSelective(b *harness.Bridge, s *read.JetStream, key string) {
	l.t.Helper()
	v, err := l.report(b, s)
	if err != nil || len(v.Faults) > 0 {
		l.t.Errorf("a false alarm: %v, %v", err, v.Found)
	}
	if len(v.Resources) != 1 || v.Resources[0].Chain != "left out by "+key {
		l.t.Errorf("the chains of %+v, want one that is left out by %s", v.Resources, key)
	}
	notCompared := slices.ContainsFunc(v.Notes, func(note string) bool {
		return strings.HasPrefix(note, "the final state was not compared") && strings.HasSuffix(note, "configmaps of informer app ("+key+")")
	})
	// What comes last is the newest state, whatever was left out before it.
	if hasFinal := key == "latest"; notCompared == hasFinal || (v.Cluster.Resources == 1) != hasFinal {
		l.t.Errorf("%d resources were compared with the API server; the notes are %q", v.Cluster.Resources, v.Notes)
	}
	events, err := s.Refresh(l.ctx)
	must(l.t, err)
	whole, err := jetStream(b).Refresh(l.ctx)
	must(l.t, err)
	if some, all := len(aboutObjects(events)), len(aboutObjects(whole)); some == 0 || some >= all {
		l.t.Errorf("the stream has %d of %d events: it leaves nothing out", some, all)
	}
}

// plant puts events into a selective stream, and wants that verify reports what they are.
func (l *lab) plant(b *harness.Bridge, s *read.JetStream, key string) {
	l.t.Helper()
	events, err := s.Refresh(l.ctx)
	must(l.t, err)
	events = slices.DeleteFunc(aboutObjects(events), func(e read.Event) bool { return e.Attribute("name") != "a" })
	newest, before := events[len(events)-1], events[len(events)-2]
	conn, err := nats.Connect(b.NATS)
	must(l.t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(l.t, err)
	stream, err := js.Stream(l.ctx, s.Stream)
	must(l.t, err)
	again := func(place uint64, change func([]byte) []byte) {
		l.t.Helper()
		raw, err := stream.GetMsg(l.ctx, place)
		must(l.t, err)
		msg := &nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: change(raw.Data)}
		msg.Header.Del(nats.MsgIdHdr)
		_, err = js.PublishMsg(l.ctx, msg)
		must(l.t, err)
	}
	same := func(data []byte) []byte { return data }

	again(newest.Place, same)
	if v, err := l.report(b, s); err != nil || v.Repeats != 1 {
		l.t.Errorf("an event comes again: %d repeats, %v", v.Repeats, err)
	}
	again(newest.Place, func(data []byte) []byte { return bytes.Replace(data, []byte(`"value"`), []byte(`"other"`), 1) })
	if v, err := l.report(b, s); err == nil || v.Faults["changed"] != 1 || len(v.Faults) != 1 {
		l.t.Errorf("an event comes again with other data: %v, %v", v.Faults, err)
	}
	again(before.Place, same)
	must(l.t, stream.DeleteMsg(l.ctx, before.Place))
	// With latest a crash makes an older state come late, which is no fault.
	want := map[string]int{"changed": 1, "disorder": 1, "removed": 1}
	if key == "latest" {
		delete(want, "disorder")
	}
	if v, err := l.report(b, s); err == nil || !reflect.DeepEqual(v.Faults, want) {
		l.t.Errorf("an event comes behind a newer one: %v, %v, want %v", v.Faults, err, want)
	}
}

func aboutObjects(events []read.Event) []read.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e read.Event) bool { return !e.AboutObject() })
}

func idsOf(events []read.Event) (ids []string) {
	for i := range events {
		ids = append(ids, events[i].ID())
	}
	slices.Sort(ids) // those of two objects come in any order
	return ids
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
	// The first shows that a message was removed, the second which one.
	if err == nil || len(v.Found) != 2 || v.Found[0].Kind != "removed" || v.Found[1].Kind != "break" ||
		v.Found[1].Version != updates[3].Attribute("resourceversion") {
		t.Errorf("an event was deleted from the stream; bridge verify says:\n%s", problemsOf(v, err))
	}
	l.stop(b)
}
