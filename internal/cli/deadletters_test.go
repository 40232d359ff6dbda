package cli

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// newJetStream is a NATS server with JetStream.
func newJetStream(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	testkit.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	conn, err := natsgo.Connect(s.ClientURL())
	testkit.OK(t, err)
	t.Cleanup(conn.Close)
	js, err = jetstream.New(conn)
	testkit.OK(t, err)
	return s.ClientURL(), js
}

// startBridge runs a bridge on the pods of kubeconfigFile with some sinks, until the test ends. Its
// configuration is that of other commands too.
func startBridge(t *testing.T, sinks string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "bridge.yaml")
	testkit.OK(t, os.WriteFile(file, fmt.Appendf(nil, `
kubernetes: {kubeconfig: %s}
state: {dir: %s}
redaction: {keyFile: %s}
admin: {address: "%s"}
informers: [{name: workloads, resources: [pods], sinks: [{name: bus}]}]
sinks:
%s
`, kubeconfigFile(t), filepath.Join(dir, "state"), filepath.Join(dir, "key"), testkit.Address(t), sinks), 0o600))
	testkit.OK(t, os.WriteFile(filepath.Join(dir, "key"), []byte(redactionKey), 0o600))
	t.Setenv("BRIDGE_CONFIG", file)
	ctx, cancel := context.WithCancel(t.Context())
	var log testkit.Buffer
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"run"}, nil, io.Discard, &log) }()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != ExitClean {
			t.Errorf("exit code %d\n%s", code, log.String())
		}
	})
}

// deadletters runs the command.
func runDeadLetters(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs testkit.Buffer
	code = run(t.Context(), append([]string{"deadletters"}, args...), nil, &out, &errs)
	return code, out.String(), errs.String()
}

// redactionKey is that of startBridge.
const redactionKey = "0123456789abcdef"

// newLetter is a dead letter of a pod, as the sink bus of startBridge makes it, with its signature.
func newLetter(t *testing.T, id, data string) *natsgo.Msg {
	t.Helper()
	letter := forgedLetter(id, data)
	e := event.Event{Data: []byte(data)}
	for name, values := range letter.Header {
		if name, ok := strings.CutPrefix(name, "ce-"); ok && !strings.HasPrefix(name, "deadletter") {
			testkit.OK(t, e.Set(name, values[0]))
		}
	}
	redactor, err := resource.NewRedactor([]byte(redactionKey))
	testkit.OK(t, err)
	letter.Header.Set("ce-deadlettersignature", redactor.Sign(streams.SignedBytes("bus", &e)))
	return letter
}

// forgedLetter has no signature.
func forgedLetter(id, data string) *natsgo.Msg {
	return &natsgo.Msg{Subject: "dead.pods.added", Data: []byte(data), Header: natsgo.Header{
		"Nats-Msg-Id": {"workloads/" + id + "/dead/bus"}, "ce-specversion": {"1.0"}, "ce-id": {id}, "ce-type": {"dev.kubebridge.resource.added"},
		"ce-source": {"/clusters/dev-cluster"}, "ce-informer": {"workloads"}, "ce-resource": {"pods"}, "ce-name": {"a"}, "ce-partitionkey": {"pods//a"},
		"ce-apiversion": {"v1"}, "ce-deadletterreason": {"x"}, "ce-deadletterattempts": {"1"},
	}}
}

type listedLetter struct{ Position, ID, Type, Reason, Destination string }

func listDeadLetters(t *testing.T, args ...string) (list []listedLetter) {
	t.Helper()
	code, out, errs := runDeadLetters(t, append([]string{"ls", "--sink", "bus", "-o", "json"}, args...)...)
	if code != ExitClean {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for line := range strings.Lines(out) {
		var l listedLetter
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		list = append(list, l)
	}
	return list
}

func idsOf(list []listedLetter) (ids []string) {
	for _, l := range list {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestDeadLetters has a NATS stream refuse every event of a bridge for its size, takes the limit
// away, and sends the dead letters again.
func TestDeadLetters(t *testing.T) {
	url, js := newJetStream(t)
	small := jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}, MaxMsgSize: 64}
	stream, err := js.CreateStream(t.Context(), small)
	testkit.OK(t, err)
	dead, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>", "other"}})
	testkit.OK(t, err)
	_, err = js.Publish(t.Context(), "other", []byte("no dead letter"))
	testkit.OK(t, err)
	startBridge(t, fmt.Sprintf(`
  - {name: bus, oversize: [], nats: {servers: ["%[1]s"], deadLetterSubject: "dead.{resource}.{op}", stream: {name: K8S, manage: "off"}}}
  - {name: view, nats: {servers: ["%[1]s"], mode: kv, bucket: pods}}
  - {name: quiet, nats: {servers: ["%[1]s"], subject: "q.{resource}.{op}", deadLetterSubject: "off", stream: {name: Q}}}
  - {name: lake, kafka: {brokers: ["127.0.0.1:1"]}}
  - {name: hook, http: {url: "http://127.0.0.1:1/"}}
  - {name: out, stdout: {}}`, url))
	// Two pods and the end of the list.
	testkit.Eventually(t, "all are dead letters", func() bool { return len(listDeadLetters(t)) >= 3 })
	letters := listDeadLetters(t)
	messages := func(s jetstream.Stream) uint64 {
		info, err := s.Info(t.Context())
		testkit.OK(t, err)
		return info.State.Msgs
	}
	t.Run("they are listed, with where they should have gone and why not", func(t *testing.T) {
		for _, l := range letters {
			if !strings.HasPrefix(l.Position, "DEAD/") || !strings.HasPrefix(l.Destination, "k8s.") || !tooLarge.MatchString(l.Reason) {
				t.Errorf("%+v", l)
			}
		}
		code, out, errs := runDeadLetters(t, "ls", "--sink", "bus", "--limit", "2")
		if lines := strings.Split(out, "\n"); code != ExitClean || len(lines) != 4 || !strings.HasPrefix(lines[0], "POSITION ") {
			t.Errorf("exit code %d\n%s%s", code, out, errs)
		}
	})
	t.Run("one is printed, by its position and by its id", func(t *testing.T) {
		for _, name := range []string{letters[0].Position, letters[0].ID} {
			code, out, errs := runDeadLetters(t, "get", name, "--sink", "bus")
			var e struct{ ID, DeadLetterReason string }
			if err := json.Unmarshal([]byte(out), &e); code != ExitClean || err != nil || e.ID != letters[0].ID || e.DeadLetterReason == "" {
				t.Errorf("exit code %d, %v\n%s%s", code, err, out, errs)
			}
		}
		for _, args := range [][]string{{"get"}, {"send"}, {"rm"}} {
			if code, _, errs := runDeadLetters(t, append(args, "DEAD/999", "--sink", "bus")...); code != ExitFailed || !strings.Contains(errs, "no dead letter DEAD/999") {
				t.Errorf("%s: exit code %d: %s", args, code, errs)
			}
		}
	})
	t.Run("what is refused again stays as it is, with the reason", func(t *testing.T) {
		before := messages(dead)
		code, out, errs := runDeadLetters(t, "send", "--all", "--sink", "bus")
		if code != ExitFailed || out != "sent 0 events\n" || messages(dead) != before ||
			len(tooLarge.FindAllString(errs, -1)) != len(letters) || !strings.Contains(errs, "still in the dead letters") {
			t.Errorf("exit code %d, %d messages, %d before\n%s%s", code, messages(dead), before, out, errs)
		}
	})
	t.Run("once the stream takes them they are sent with their ids, and removed", func(t *testing.T) {
		small.MaxMsgSize = -1
		_, err := js.UpdateStream(t.Context(), small)
		testkit.OK(t, err)
		// The sink asks for the limit of its stream from time to time.
		testkit.Eventually(t, "one is sent", func() bool {
			code, _, _ := runDeadLetters(t, "send", letters[1].Position, "--sink", "bus")
			return code == ExitClean
		})
		if left := listDeadLetters(t); len(left) != len(letters)-1 {
			t.Errorf("left: %+v", left)
		}
		if code, out, errs := runDeadLetters(t, "send", "--all", "--sink", "bus"); code != ExitClean || out != fmt.Sprintf("sent %d events\n", len(letters)-1) {
			t.Errorf("exit code %d\n%s%s", code, out, errs)
		}
		if _, out, _ := runDeadLetters(t, "ls", "--sink", "bus"); out != "No dead letters.\n" || messages(dead) != 1 {
			t.Errorf("%d messages: %s", messages(dead), out)
		}
		info, err := stream.Info(t.Context())
		testkit.OK(t, err)
		var got []string
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			m, err := stream.GetMsg(t.Context(), seq)
			testkit.OK(t, err)
			got = append(got, m.Header.Get("ce-id"))
			if m.Header.Get("ce-deadletterreason") != "" || len(m.Data) == 0 {
				t.Errorf("%q on %s", m.Header, m.Subject)
			}
		}
		slices.Sort(got)
		if want := idsOf(letters); !slices.Equal(got, want) {
			t.Errorf("the stream has %q, want %q", got, want)
		}
	})
	t.Run("more than one command names are sent in their order", func(t *testing.T) {
		const many = 450 // more than two commands name
		before := messages(stream)
		for i := range many {
			_, err := js.PublishMsg(t.Context(), newLetter(t, fmt.Sprintf("b/%d", i), "{}"))
			testkit.OK(t, err)
		}
		code, out, errs := runDeadLetters(t, "send", "--all", "--sink", "bus")
		if code != ExitClean || out != fmt.Sprintf("sent %d events\n", many) || messages(dead) != 1 || messages(stream) != before+many {
			t.Errorf("exit code %d, %d and %d messages\n%s%s", code, messages(dead), messages(stream), out, errs)
		}
		for i := range many {
			m, err := stream.GetMsg(t.Context(), before+1+uint64(i))
			testkit.OK(t, err)
			if id := m.Header.Get("ce-id"); id != fmt.Sprintf("b/%d", i) {
				t.Fatalf("event %d is %s", i, id)
			}
		}
	})
	t.Run("what somebody else wrote or changed is not sent", func(t *testing.T) {
		before := messages(stream)
		forged := map[string]*natsgo.Msg{"unsigned": forgedLetter("f/1", "{}")}
		for name, change := range map[string]func(h natsgo.Header){
			"of another object":    func(h natsgo.Header) { h.Set("ce-name", "b") },
			"of another subject":   func(h natsgo.Header) { h.Set("ce-resource", "secrets") },
			"with an attribute":    func(h natsgo.Header) { h.Set("ce-team", "x") },
			"signed by another":    func(h natsgo.Header) { h.Set("ce-deadlettersignature", strings.Repeat("0", 64)) },
			"with another version": func(h natsgo.Header) { h.Set("ce-resourceversion", "999999") },
		} {
			forged[name] = newLetter(t, "f/1", "{}")
			change(forged[name].Header)
		}
		forged["with other data"] = newLetter(t, "f/1", "{}")
		forged["with other data"].Data = []byte(`{"a":1}`)
		for name, letter := range forged {
			ack, err := js.PublishMsg(t.Context(), letter, jetstream.WithMsgID("workloads/"+strings.ReplaceAll(name, " ", "")+"/dead/bus"))
			testkit.OK(t, err)
			position := fmt.Sprintf("DEAD/%d", ack.Sequence)
			code, out, errs := runDeadLetters(t, "send", position, "--sink", "bus")
			if code != ExitFailed || !strings.Contains(errs, "is not signed with this bridge's redaction key") || messages(stream) != before {
				t.Errorf("%s: exit code %d: %s%s", name, code, out, errs)
			}
			if code, out, _ := runDeadLetters(t, "rm", position, "--sink", "bus"); code != ExitClean {
				t.Errorf("%s: %s", name, out)
			}
		}
	})
	t.Run("what has no payload is not sent, and can be removed", func(t *testing.T) {
		letter := newLetter(t, "a/1", "")
		letter.Header["ce-truncated"] = []string{"true"}
		_, err := js.PublishMsg(t.Context(), letter)
		testkit.OK(t, err)
		if code, _, errs := runDeadLetters(t, "send", "a/1", "--sink", "bus"); code != ExitFailed || !strings.Contains(errs, "no payload") {
			t.Errorf("exit code %d: %s", code, errs)
		}
		if code, out, errs := runDeadLetters(t, "rm", "a/1", "--sink", "bus"); code != ExitClean || out != "removed 1 dead letter\n" || messages(dead) != 1 {
			t.Errorf("exit code %d: %s%s", code, out, errs)
		}
	})
	t.Run("what is no event is counted, and stays", func(t *testing.T) {
		info, err := dead.Info(t.Context())
		testkit.OK(t, err)
		first := fmt.Sprintf("DEAD/%d", info.State.LastSeq+1)
		noID, noMedia, others := newLetter(t, "c/1", "{}"), newLetter(t, "c/2", "{}"), newLetter(t, "c/3", "{}")
		noID.Header.Del("ce-id")
		noMedia.Header.Set("ce-datacontenttype", "json; ;")
		others.Header.Set("Nats-Msg-Id", "workloads/c/3/dead/other")
		others.Header.Del("ce-id")
		for _, letter := range []*natsgo.Msg{noID, noMedia, others} {
			_, err := js.PublishMsg(t.Context(), letter)
			testkit.OK(t, err)
		}
		requireInvalid(t, ExitRefused, "", "bridge: 2 messages are no dead letters; the first: "+first+": it is no CloudEvent 1.0: id: MUST be", "ls")
		requireInvalid(t, ExitFailed, "", first+": it is no CloudEvent 1.0", "get", first)
		requireInvalid(t, ExitFailed, "", first+": it is no CloudEvent 1.0", "rm", first)
		_, err = js.PublishMsg(t.Context(), newLetter(t, "c/4", "{}"))
		testkit.OK(t, err)
		requireInvalid(t, ExitClean, "SINCE", "2 messages are no dead letters; the first: "+first+": ", "ls")
		requireInvalid(t, ExitClean, `"id":"c/4"`, "2 messages are no dead letters; the first: "+first+": ", "ls", "-o", "json")
		requireInvalid(t, ExitClean, "sent 1 event\n", "2 messages are no dead letters; the first: "+first+": ", "send", "--all")
		cmd := &cobra.Command{}
		answer, err := newResendClient(cmd, newClient(cmd), "deadletters").send(t.Context(), "bus", []string{first})
		if err != nil || len(answer.Kept) != 1 || !strings.Contains(answer.Kept[0].Reason, "it is no CloudEvent 1.0: id: MUST be") {
			t.Errorf("the bridge answers %+v, %v", answer, err)
		}
		requireInvalid(t, ExitClean, "removed 0 dead letters\n", "2 messages are no dead letters; the first: "+first+": ", "rm", "--all")
		if left := messages(dead); left != 4 { // with that on the subject other
			t.Errorf("%d messages are left", left)
		}
	})
	t.Run("a sink without dead letters that can be read says so", func(t *testing.T) {
		for sink, want := range map[string]string{
			"view": "the mode is kv", "quiet": "nats.deadLetterSubject is off", "lake": "kafka.deadLetterTopic is not set",
			"hook": "http.deadLetterURL", "out": "only nats and kafka", "none": `there is no sink "none"`,
		} {
			for _, args := range [][]string{{"ls"}, {"get", "K8S/1"}, {"send", "--all"}, {"rm", "--all"}} {
				if code, _, errs := runDeadLetters(t, append(args, "--sink", sink)...); code != ExitRefused || !strings.Contains(errs, want) {
					t.Errorf("%s %s: exit code %d: %s", args, sink, code, errs)
				}
			}
		}
	})
}

// requireInvalid runs a command on dead letters of the sink bus of which some are invalid.
func requireInvalid(t *testing.T, code int, stdout, stderr string, args ...string) {
	t.Helper()
	got, out, errs := runDeadLetters(t, append(args, "--sink", "bus")...)
	if got != code || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
		t.Errorf("%v: exit code %d, want %d\n%s%s", args, got, code, out, errs)
	}
}

// TestDeadLettersStay is about dead letters that can't be removed: of a stream that forbids it, and
// without a bridge that sends them. A letter has its signature in each encoding.
func TestDeadLettersStay(t *testing.T) {
	for _, encoding := range []string{"binary", "structured", "flat"} {
		t.Run(encoding, func(t *testing.T) { testDeadLettersStay(t, encoding) })
	}
}

func testDeadLettersStay(t *testing.T, encoding string) {
	t.Helper()
	url, js := newJetStream(t)
	small := jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}, MaxMsgSize: 64}
	_, err := js.CreateStream(t.Context(), small)
	testkit.OK(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead.>"}, DenyDelete: true})
	testkit.OK(t, err)
	startBridge(t, fmt.Sprintf(`
  - {name: bus, oversize: [], encoding: %s, nats: {servers: ["%s"], deadLetterSubject: "dead.{resource}.{op}", stream: {name: K8S, manage: "off"}}}`, encoding, url))
	testkit.Eventually(t, "all are dead letters", func() bool { return len(listDeadLetters(t)) >= 3 })
	letters := listDeadLetters(t)
	if code, out, errs := runDeadLetters(t, "send", "--all", "--admin-address", "127.0.0.1:1"); code != ExitRefused || !strings.Contains(errs, "no bridge answers") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	small.MaxMsgSize = -1
	_, err = js.UpdateStream(t.Context(), small)
	testkit.OK(t, err)
	var out string
	testkit.Eventually(t, "all are sent", func() bool {
		code, stdout, _ := runDeadLetters(t, "send", "--all")
		out = stdout
		return code == ExitClean
	})
	behind := fmt.Sprintf("DEAD/%d", len(letters)+1)
	if !strings.Contains(out, "message delete not permitted") || !strings.HasSuffix(out, "to continue behind them: --from "+behind+"\n") {
		t.Errorf("it says %s", out)
	}
	if left := listDeadLetters(t); len(left) != len(letters) {
		t.Errorf("left: %+v", left)
	}
	if code, out, errs := runDeadLetters(t, "send", "--all", "--from", behind); code != ExitClean || out != "sent 0 events\n" {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if code, _, errs := runDeadLetters(t, "rm", "--all"); code != ExitFailed || !strings.Contains(errs, "message delete not permitted") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestDeadLettersOfKafka has a topic refuse every event, and sends the dead letters again.
func TestDeadLettersOfKafka(t *testing.T) {
	const topic = "k8s.dev-cluster.pods"
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, topic, "dead"))
	testkit.OK(t, err)
	t.Cleanup(cluster.Close)
	var taken atomic.Bool
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce := r.(*kmsg.ProduceRequest)
		if len(produce.Topics) == 0 || produce.Topics[0].Topic != topic || taken.Load() {
			return nil, nil, false
		}
		answer := produce.ResponseKind().(*kmsg.ProduceResponse)
		for i := range produce.Topics {
			of := kmsg.NewProduceResponseTopic()
			of.Topic, of.TopicID = produce.Topics[i].Topic, produce.Topics[i].TopicID
			for _, p := range produce.Topics[i].Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, kerr.InvalidRecord.Code
				of.Partitions = append(of.Partitions, partition)
			}
			answer.Topics = append(answer.Topics, of)
		}
		return answer, nil, true
	})
	startBridge(t, fmt.Sprintf(`
  - {name: bus, kafka: {brokers: [%s], deadLetterTopic: dead}}`, strings.Join(cluster.ListenAddrs(), ",")))
	// Two pods, and the end of the list in each partition.
	testkit.Eventually(t, "all are dead letters", func() bool { return len(listDeadLetters(t)) >= 4 })
	letters := listDeadLetters(t)
	if code, _, errs := runDeadLetters(t, "send", "--all"); code != ExitFailed || !strings.Contains(errs, "still in the dead letters") || len(listDeadLetters(t)) != len(letters) {
		t.Errorf("exit code %d: %s", code, errs)
	}
	taken.Store(true)
	code, out, errs := runDeadLetters(t, "send", "--all")
	if code != ExitClean || !strings.HasPrefix(out, fmt.Sprintf("sent %d events\n", len(letters))) || !strings.Contains(out, "Kafka removes no single records") {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	_, behind, _ := strings.Cut(strings.TrimSpace(out), "to continue behind them: ")
	from := strings.Fields(behind)
	if left := listDeadLetters(t, from...); len(left) != 0 || len(from) != 4 {
		t.Errorf("behind %q: %+v", from, left)
	}
	if code, _, errs := runDeadLetters(t, "rm", "--all"); code != ExitRefused || !strings.Contains(errs, "Kafka removes no single records") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	client := consumer(t, cluster.ListenAddrs(), topic)
	t.Run("what is no event is counted, and so is a batch that can't be read", func(t *testing.T) {
		noID := &kgo.Record{Topic: "dead", Value: []byte("{}"), Headers: []kgo.RecordHeader{
			{Key: "sink", Value: []byte("bus")}, {Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_type", Value: []byte("t")},
		}}
		stored, err := client.ProduceSync(t.Context(), noID).First()
		testkit.OK(t, err)
		first := fmt.Sprintf("dead/%d/%d", stored.Partition, stored.Offset)
		invalid := first + ": it is no CloudEvent 1.0: "
		requireInvalid(t, ExitRefused, "", "bridge: 1 message is no dead letter: "+invalid, append([]string{"ls"}, from...)...)
		requireInvalid(t, ExitClean, "sent 0 events\n", "1 message is no dead letter: "+invalid, append([]string{"send", "--all"}, from...)...)
		produceDamaged(t, client, cluster.TopicInfo("dead"))
		requireInvalid(t, ExitClean, "SINCE", "2 messages are no dead letters; the first: ", "ls")
	})
	var got []string
	places := map[string]bool{}
	for len(got) < len(letters) {
		fetches := client.PollFetches(t.Context())
		testkit.OK(t, fetches.Err())
		for record := range fetches.RecordsAll() {
			for _, h := range record.Headers {
				if h.Key == "ce_id" {
					got = append(got, string(h.Value))
				}
			}
			places[fmt.Sprintf("%d %s", record.Partition, record.Key)] = true
		}
	}
	slices.Sort(got)
	if want := idsOf(letters); !slices.Equal(got, want) {
		t.Errorf("the topic has %q, want %q", got, want)
	}
	for partition := range 2 { // the end of the list is in each, under its key
		if key := fmt.Sprintf("%d informers/workloads/pods/synced", partition); !places[key] {
			t.Errorf("no %q in %v", key, places)
		}
	}
}

// produceDamaged stores a batch whose records can't be read: they are no gzip.
func produceDamaged(t *testing.T, client *kgo.Client, topic *kfake.TopicInfo) {
	t.Helper()
	const beforeLength, beforeSum, summed = 12, 17, 21
	records := []byte("no gzip")
	batch := kmsg.RecordBatch{
		Magic: 2, Attributes: 1, PartitionLeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: records,
	}
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[beforeLength-4:], uint32(len(raw)-beforeLength))
	binary.BigEndian.PutUint32(raw[beforeSum:], crc32.Checksum(raw[summed:], crc32.MakeTable(crc32.Castagnoli)))
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = -1, 10_000
	of, in := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	of.Topic, of.TopicID, in.Records = topic.Topic, topic.TopicID, raw
	of.Partitions = append(of.Partitions, in)
	request.Topics = append(request.Topics, of)
	answer, err := request.RequestWith(t.Context(), client)
	testkit.OK(t, err)
	testkit.OK(t, kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
}
