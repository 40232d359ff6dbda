package recipes_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// lab has the programs of the pages, a bridge that feeds them, and a witness of what is true.
type lab struct {
	t         *testing.T
	dir       string
	env       []string
	addresses map[string]string
	client    kubernetes.Interface
	plane     *harness.ControlPlane
	bridge    *harness.Bridge
	ledger    *truth.Ledger
}

const shop = "shop"

func newLab(t *testing.T, pages ...string) *lab {
	t.Helper()
	l := &lab{t: t, addresses: map[string]string{}}
	l.dir, l.env = directory(t, pages[0])
	broker(t, pages[0], l.addresses)
	for _, name := range pages {
		p := readPage(t, name, l.addresses)
		p.writeFiles(t, l.dir)
		p.createTopics(t, l.addresses)
		buildGo(t, p, l.dir)
	}
	l.plane = controlPlane(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var err error
	l.client, err = kubernetes.NewForConfig(l.plane.Admin())
	must(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	_, err = l.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	must(t, err)
	for exists := false; !exists; { // what every namespace gets comes before the bridge
		const name = "kube-root-ca.crt"
		_, err := l.client.CoreV1().ConfigMaps(shop).Get(ctx, name, metav1.GetOptions{})
		exists = err == nil
		must(t, ctx.Err())
	}
	l.ledger, err = truth.Watch(ctx, l.plane.Admin(),
		truth.Core("configmaps", shop), truth.Core("pods", shop))
	must(t, err)
	t.Cleanup(l.ledger.Stop)
	return l
}

// startBridge starts a bridge of these informers and sinks.
func (l *lab) startBridge(yaml string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	path, err := bridgeBinary()
	must(l.t, err)
	l.bridge, err = harness.NewBridge(harness.BridgeConfig{
		Binary: path, Dir: filepath.Join(l.dir, "bridge"),
		Kubeconfig: l.plane.Kubeconfig, Cluster: "dev",
		YAML: yaml,
	})
	must(l.t, err)
	must(l.t, l.bridge.StartAndWait(ctx))
	l.t.Cleanup(l.bridge.Kill)
}

// bothPages has configmaps go where analytics.md and functions.md look for them.
func (l *lab) bothPages() string {
	return fmt.Sprintf(`
informers:
  - {name: workloads, resources: [pods], namespaces: [shop], sinks: [{name: stream}]}
  - {name: settings, resources: [configmaps], namespaces: [shop]}
sinks:
  - name: stream
    nats: {embedded: true, servers: ["nats://%s"], stream: {duplicateWindow: 1s}}
  - name: topic
    kafka:
      brokers: [%q]
      topic: k8s.configmaps
      compression: gzip
      createTopics: {partitions: 3, replicationFactor: 1}
`, l.addresses[natsAddress], l.addresses[kafkaAddress])
}

// start starts a program of a page.
func (l *lab) start(ctx context.Context, args ...string) (cmd *exec.Cmd, printed *strings.Builder) {
	printed = &strings.Builder{}
	program := args[0]
	if strings.HasSuffix(args[1], ".py") {
		program = l.python()
	}
	cmd = exec.CommandContext(ctx, program, args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = l.dir, l.env, printed, printed
	return cmd, printed
}

func (l *lab) python() string { return installed(l.t, "PYTHON") }

// run runs a program of a page to its end.
func (l *lab) run(args ...string) string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Minute)
	defer cancel()
	cmd, printed := l.start(ctx, args...)
	if err := cmd.Run(); err != nil {
		l.t.Fatalf("%v: %v\n%s", args, err, printed)
	}
	return printed.String()
}

// readers are the programs that keep something, each with what it is called with.
var readers = [][]string{
	{"python3", "load_duckdb.py"},
	{"python3", "function_nats.py", "nats-py.db", "function-py", "--once"},
	{"node", "function_nats.mjs", "nats-js.db", "function-js", "--once"},
	{"python3", "function_kafka.py", "kafka-py.db", "function-py", "--once"},
	{"node", "function_kafka.mjs", "kafka-js.db", "function-js", "--once"},
	{"./function_nats", "nats-go", "function-go", "--once"},
	{"./function_kafka", "kafka-go", "function-go", "--once"},
}

// interrupt runs programs at the same time, and kills each after a moment.
func (l *lab) interrupt(readers [][]string, moment time.Duration) {
	l.t.Helper()
	var running []*exec.Cmd
	for _, reader := range readers {
		cmd, _ := l.start(l.t.Context(), reader...)
		must(l.t, cmd.Start())
		running = append(running, cmd)
	}
	time.Sleep(moment)
	for _, cmd := range running {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}

// catchUp runs all readers to the end of their streams.
func (l *lab) catchUp() {
	l.t.Helper()
	for _, reader := range append(readers, []string{"python3", "load_clickhouse.py"}) {
		l.run(reader...)
	}
}

// lines are the sorted lines that a query or program prints.
func lines(text string) []string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(all)
	return slices.DeleteFunc(all, func(line string) bool { return line == "" })
}

// tabs makes what both engines print the same.
var tabs = strings.NewReplacer("\t", " ")

// ask asks an engine.
func (l *lab) ask(engine, query string) []string {
	l.t.Helper()
	file := "question.sql"
	must(l.t, os.WriteFile(filepath.Join(l.dir, file), []byte(query), 0o600))
	return lines(tabs.Replace(l.run("python3", "ask_"+engine+".py", file)))
}

// query is the statement of a page up to a marker, and another end.
func (l *lab) query(file, marker, end string) string {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, file))
	must(l.t, err)
	head, _, found := strings.Cut(string(text), marker)
	if !found {
		l.t.Fatalf("%s has no %q", file, marker)
	}
	return head + end
}

// operations are the last words of the types of events.
var operations = map[string]string{"ADDED": "added", "MODIFIED": "updated", "DELETED": "deleted"}

// id is the id of the event of a change.
func id(ch *truth.Change) string {
	if ch.Type == "DELETED" {
		return ch.Metadata.UID + "/deleted"
	}
	return ch.Metadata.UID + "/" + ch.Metadata.ResourceVersion
}

// acts are what a function did: the hash of the key that it stored, and the first two words of its
// effect, or of its dead letter.
func (l *lab) acts(reader []string) (all []string) {
	l.t.Helper()
	if !strings.HasPrefix(reader[0], "./") {
		const program = `import hashlib, json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for key, what in db.execute("SELECT id, what FROM done"):
    print(hashlib.sha256(key.encode()).hexdigest(), *what.split()[:2])
for key, event in db.execute("SELECT id, event FROM dead"):
    print(hashlib.sha256(key.encode()).hexdigest(), "given up", json.loads(event)["name"])`
		must(l.t, os.WriteFile(filepath.Join(l.dir, "acts.py"), []byte(program), 0o600))
		return lines(l.run("python3", "acts.py", reader[2]))
	}
	for folder, words := range map[string]int{".": 2, "dead": 3} {
		files, err := filepath.Glob(filepath.Join(l.dir, reader[1], folder, strings.Repeat("?", 64)))
		must(l.t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(l.t, err)
			what, _, _ := strings.Cut(string(text), ":")
			all = append(all, strings.Join(append([]string{filepath.Base(file)}, strings.Fields(what)[:words]...), " "))
		}
	}
	slices.Sort(all)
	return all
}

// requireHistory compares the tables of versions, and what the functions did, with the truth.
func (l *lab) requireHistory(when string) {
	l.t.Helper()
	must(l.t, l.ledger.Err())
	var versions, acts []string
	changes := l.ledger.Changes()
	for i := range changes {
		ch := &changes[i]
		versions = append(versions, id(ch))
		if ch.Resource == "configmaps" && !ch.Initial {
			did := operations[ch.Type] + " " + ch.Metadata.Name
			if ch.Metadata.Name == kept {
				did = "given up " + kept
			}
			key := sha256.Sum256([]byte("/clusters/dev settings " + id(ch)))
			acts = append(acts, hex.EncodeToString(key[:])+" "+did)
		}
	}
	const all = "SELECT id FROM events %s WHERE type LIKE 'dev.kubebridge.resource.%%'"
	l.same(when+", versions in DuckDB", l.ask("duckdb", fmt.Sprintf(all, "")), versions)
	l.same(when+", versions in ClickHouse",
		l.ask("clickhouse", fmt.Sprintf(all, "FINAL")), versions)
	for _, reader := range readers[1:] {
		l.same(when+", acts of "+strings.Join(reader, " "), l.acts(reader), acts)
	}
}

// requireState compares the tables of what exists, and the restarts, with the truth.
func (l *lab) requireState(when string) {
	l.t.Helper()
	must(l.t, l.ledger.Err())
	var exists []string
	for _, ch := range truth.Alive(l.ledger.Changes()) {
		exists = append(exists, ch.Metadata.Name+" "+ch.Metadata.ResourceVersion)
	}
	duckdb := l.query("current.sql", "SELECT namespace, name, data",
		"SELECT name, data->>'$.metadata.resourceVersion' FROM current")
	clickhouse := strings.Replace(l.query("current_clickhouse.sql", "  AND partitionkey LIKE", ""),
		"SELECT namespace, name, uid",
		"SELECT name, JSONExtractString(data, 'metadata', 'resourceVersion')", 1)
	l.same(when+", what exists in DuckDB", l.ask("duckdb", duckdb), exists)
	l.same(when+", what exists in ClickHouse", l.ask("clickhouse", clickhouse), exists)
}

func (l *lab) same(what string, got, want []string) {
	l.t.Helper()
	slices.Sort(want)
	if slices.Equal(got, want) {
		l.t.Logf("%s: %d, as it is", what, len(got))
		return
	}
	more, fewer := counts(got), counts(want)
	for line, n := range counts(got) {
		fewer[line] -= n
	}
	for line, n := range counts(want) {
		more[line] -= n
	}
	gone := func(_ string, n int) bool { return n <= 0 }
	maps.DeleteFunc(more, gone)
	maps.DeleteFunc(fewer, gone)
	l.t.Errorf("%s: %d, want %d; too many: %.1000s; missing: %.1000s",
		what, len(got), len(want), fmt.Sprint(more), fmt.Sprint(fewer))
}

func counts(all []string) map[string]int {
	n := map[string]int{}
	for _, line := range all {
		n[line]++
	}
	return n
}

// restart makes pods, and raises the counters of some.
func (l *lab) restart() {
	l.t.Helper()
	for i := range 3 {
		name := fmt.Sprintf("restarts-%d", i)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "main", Image: "any"}},
			},
		}
		pods := l.client.CoreV1().Pods(shop)
		_, err := pods.Create(l.t.Context(), pod, metav1.CreateOptions{})
		must(l.t, err)
		for n := range i + 1 {
			patch := fmt.Sprintf(`{"status":{"containerStatuses":[{"name":"main","image":"any",`+
				`"imageID":"","ready":true,"restartCount":%d}]}}`, 2*n)
			_, err := pods.Patch(l.t.Context(), name, types.MergePatchType, []byte(patch),
				metav1.PatchOptions{}, "status")
			must(l.t, err)
		}
	}
}

// restarted is the answer to the question which pods restarted most.
func (l *lab) restarted() (answer []string) {
	l.t.Helper()
	rose, before := map[string]int{}, map[string]int{}
	changes := l.ledger.Changes()
	for i := range changes {
		ch := &changes[i]
		if ch.Resource != "pods" {
			continue
		}
		var pod corev1.Pod
		must(l.t, json.Unmarshal(ch.Raw, &pod))
		now := 0
		for _, c := range pod.Status.ContainerStatuses {
			now += int(c.RestartCount)
		}
		if last, known := before[ch.Metadata.UID]; known && now > last {
			rose[ch.Metadata.Name] += now - last // these pods have different names
		}
		before[ch.Metadata.UID] = now
	}
	for name, n := range rose {
		answer = append(answer, fmt.Sprintf("%s %s %d", shop, name, n))
	}
	return answer
}

// repeatMessages stores every second message again, when the server has forgotten their ids.
func (l *lab) repeatMessages() {
	l.t.Helper()
	nc, err := nats.Connect("nats://" + l.addresses[natsAddress])
	must(l.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(l.t, err)
	stream, err := js.Stream(l.t.Context(), "K8S")
	must(l.t, err)
	last := stream.CachedInfo().State.LastSeq
	for seq := uint64(1); seq <= last; seq += 2 {
		raw, err := stream.GetMsg(l.t.Context(), seq)
		must(l.t, err)
		_, err = js.PublishMsg(l.t.Context(),
			&nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: raw.Data})
		must(l.t, err)
	}
	l.t.Logf("stored again: %d messages", (last+1)/2)
}

// records are those of a topic, in the order of each partition.
func (l *lab) records(topic string) (all []*kgo.Record) {
	l.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(l.addresses[kafkaAddress]), kgo.ConsumeTopics(topic))
	must(l.t, err)
	defer client.Close()
	for {
		ctx, cancel := context.WithTimeout(l.t.Context(), 3*time.Second)
		fetched := client.PollFetches(ctx)
		cancel()
		if fetched.NumRecords() == 0 {
			return all
		}
		all = append(all, fetched.Records()...)
	}
}

// repeatRecords stores some records of a topic again, in their order.
func (l *lab) repeatRecords(topic string, some func(*kgo.Record) bool) {
	l.t.Helper()
	var records []*kgo.Record
	for _, r := range l.records(topic) {
		if some(r) {
			records = append(records, &kgo.Record{
				Topic: r.Topic, Partition: r.Partition,
				Key: r.Key, Value: r.Value, Headers: r.Headers,
			})
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(l.addresses[kafkaAddress]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(l.t, err)
	defer client.Close()
	must(l.t, client.ProduceSync(l.t.Context(), records...).FirstErr())
	l.t.Logf("stored again: %d records", len(records))
}

// kept is an object that functions can't handle: it has no data.
const kept = "kept"

// keep makes the object that forget deletes.
func (l *lab) keep() {
	l.t.Helper()
	_, err := l.client.CoreV1().ConfigMaps(shop).Create(l.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: kept}}, metav1.CreateOptions{})
	must(l.t, err)
}

// forget has the bridge lose the state of its configmaps, while one is deleted.
func (l *lab) forget() {
	l.t.Helper()
	l.reset(func(ctx context.Context) {
		must(l.t, l.client.CoreV1().ConfigMaps(shop).Delete(ctx, kept, metav1.DeleteOptions{}))
	})
}

// reset stops the bridge, resets the state of its configmaps, and starts it after something.
func (l *lab) reset(meanwhile func(context.Context)) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	defer cancel()
	_, err := l.bridge.Stop(ctx)
	must(l.t, err)
	path, err := bridgeBinary()
	must(l.t, err)
	out, err := exec.CommandContext(ctx, path, "statedir", "reset", "configmaps", "--yes",
		"--state-dir", l.bridge.StateDir).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%v\n%s", err, out)
	}
	meanwhile(ctx)
	must(l.t, l.bridge.StartAndWait(ctx))
}

// TestEngines has the programs of the pages read a stream with updates, deletes, objects that come
// back under their names, and repeats. The bridge and the programs are killed meanwhile. What they
// keep equals what a watch of the API server has seen.
func TestEngines(t *testing.T) {
	l := newLab(t, "functions.md", "analytics.md")
	l.startBridge(l.bothPages())
	l.keep()
	churn := crash.StartChurn(t.Context(), l.client, shop, rand.Uint64(), 4)
	l.restart()
	for range 2 {
		l.interrupt(readers, 4*time.Second)
		l.bridge.Kill()
		must(t, l.bridge.StartAndWait(t.Context()))
	}
	must(t, churn.Stop())
	l.settle()
	l.catchUp()
	l.requireHistory("after kills")
	l.requireState("after kills")
	for engine, file := range map[string]string{
		"duckdb": "restarts.sql", "clickhouse": "restarts_clickhouse.sql",
	} {
		answer := lines(tabs.Replace(l.run("python3", "ask_"+engine+".py", file)))
		l.same("restarts in "+engine, answer, l.restarted())
	}
	l.repeatMessages()
	l.repeatRecords("k8s.configmaps", func(r *kgo.Record) bool { return r.Offset%2 == 0 })
	l.catchUp()
	l.requireHistory("after repeats")
	l.requireState("after repeats")
	l.forget()
	l.settle()
	l.catchUp()
	l.requireState("after a forgotten gap")
	t.Logf("%d changes", l.ledger.Len())
}

// TestLostStream deletes the stream, which has a delete that was not read, while the bridge runs.
// The loader reports it until the remedy of the page has made a first list.
func TestLostStream(t *testing.T) {
	l := newLab(t, "analytics.md")
	l.startBridge(fmt.Sprintf(`
informers:
  - {name: settings, resources: [configmaps], namespaces: [shop]}
sinks:
  - {name: stream, nats: {embedded: true, servers: ["nats://%s"]}}
`, l.addresses[natsAddress]))
	l.keep()
	l.settle()
	load := func() string { return l.run("python3", "load_duckdb.py") }
	load()
	conn, err := nats.Connect("nats://" + l.addresses[natsAddress])
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	must(t, l.client.CoreV1().ConfigMaps(shop).Delete(t.Context(), kept, metav1.DeleteOptions{}))
	time.Sleep(10 * time.Second) // it is in the stream, and the bridge has inspected that
	must(t, js.DeleteStream(t.Context(), "K8S"))
	said := ""
	for late := time.After(time.Minute); !strings.Contains(said, "gap lost settings configmaps"); time.Sleep(time.Second) {
		select {
		case <-late:
			t.Fatalf("no gap: %q", said)
		default:
		}
		if _, err := js.Stream(t.Context(), "K8S"); err == nil {
			said += load()
		}
	}
	const warning = "may be wrong since a gap: settings configmaps lost"
	if said := load(); !strings.Contains(said, warning) {
		t.Errorf("the loader prints %q", said)
	}
	l.reset(func(context.Context) {})
	l.settle()
	if said := load(); !strings.Contains(said, "gap forgotten") || strings.Contains(said, warning) {
		t.Errorf("after the reset the loader prints %q", said)
	}
	l.run("python3", "load_clickhouse.py")
	l.requireState("after the reset")
}

// settle waits until nothing changes any more: the nodes play on for a moment.
func (l *lab) settle() {
	l.t.Helper()
	for before, quiet := -1, 0; quiet < 3; {
		time.Sleep(time.Second)
		if now := l.ledger.Len(); now != before {
			before, quiet = now, 0
		} else {
			quiet++
		}
	}
}
