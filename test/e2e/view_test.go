package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// tableOf is what a reader of compacted topics ends up with: the last value of each key, without
// those whose last value is null, and without what is about an informer.
func tableOf(ctx context.Context, broker string, topics ...string) (map[string][]byte, error) {
	connection, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableFetchSessions()) // with them, Close has a data race in franz-go
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	ends, err := kadm.NewClient(connection).ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	left := map[string]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[fmt.Sprint(o.Topic, o.Partition)] = o.Offset
		}
	})
	table := map[string][]byte{}
	for len(left) > 0 {
		fetched := connection.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			return nil, err
		}
		for r := range fetched.RecordsAll() {
			key, place := string(r.Key), fmt.Sprint(r.Topic, r.Partition)
			if r.Value == nil {
				delete(table, key)
			} else if !strings.HasPrefix(key, "informers/") {
				table[key] = r.Value
			}
			if r.Offset+1 >= left[place] {
				delete(left, place)
			}
		}
	}
	return table, nil
}

func topicsOf(collections []truth.Collection) (topics []string) {
	for _, c := range collections {
		topics = append(topics, "k8s."+clusterName+"."+strings.Split(c.String(), ".")[0])
	}
	return topics
}

// viewProblems are the differences between the topics and the objects that exist.
func (l *lab) viewProblems(broker string, collections []truth.Collection) (problems []string) {
	ctx, cancel := context.WithTimeout(l.ctx, testPatience)
	defer cancel()
	table, err := tableOf(ctx, broker, topicsOf(collections)...)
	if err != nil {
		return []string{err.Error()}
	}
	for _, ch := range l.exists(collections) {
		key := ch.Collection.String() + "/" + ch.Metadata.Namespace + "/" + ch.Metadata.Name
		want, err := ch.WithoutManagedFields()
		if err != nil || !bytes.Equal(table[key], want) {
			problems = append(problems, fmt.Sprintf("%s is %s, want %s (%v)", key, table[key], want, err))
		}
		delete(table, key)
	}
	for key := range table {
		problems = append(problems, key+" does not exist")
	}
	return problems
}

// requireReaders compares what clients for JavaScript and Python find in the topics and in the
// bucket with the objects that exist. READERS is where make installs them.
func (l *lab) requireReaders(
	after, broker, url string, collections []truth.Collection,
) {
	l.t.Helper()
	dir := os.Getenv("READERS")
	if dir == "" {
		l.t.Logf("after %s: not read by others, make test-integration installs them", after)
		return
	}
	inTopics, inBucket := map[string][]byte{}, map[string][]byte{}
	for _, ch := range l.exists(collections) {
		object, err := ch.WithoutManagedFields()
		must(l.t, err)
		path := []string{ch.Collection.String(), ch.Metadata.Namespace, ch.Metadata.Name}
		inTopics[strings.Join(path, "/")] = object
		resource, group, _ := strings.Cut(path[0], ".")
		key := []string{cmp.Or(group, "core"), resource, path[1], path[2]}
		for i, part := range key {
			key[i] = strings.ReplaceAll(part, ".", "_")
		}
		inBucket[strings.Join(key, ".")] = object
	}
	inKafka, inNATS := filepath.Join(dir, "kafka"), filepath.Join(dir, "nats")
	python := filepath.Join("venv", "bin", "python")
	topics := append([]string{broker}, topicsOf(collections)...)
	for _, reader := range []struct {
		program, script string
		of              []string
		want            map[string][]byte
	}{
		{"node", filepath.Join(inKafka, "topic.mjs"), topics, inTopics},
		{filepath.Join(inKafka, python), filepath.Join(inKafka, "topic.py"), topics, inTopics},
		{"node", filepath.Join(inNATS, "bucket.mjs"), []string{url, "NOW"}, inBucket},
		{filepath.Join(inNATS, python), filepath.Join(inNATS, "bucket.py"), []string{url, "NOW"}, inBucket},
	} {
		name := filepath.Base(reader.script)
		ctx, cancel := context.WithTimeout(l.ctx, startTime)
		cmd := exec.CommandContext(ctx, reader.program, append([]string{reader.script}, reader.of...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		cancel()
		if err != nil {
			l.t.Fatalf("after %s, %s: %v\n%s", after, name, err, stderr.Bytes())
		}
		found := 0
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var entry struct {
				Key   string
				Value []byte
			}
			must(l.t, d.Decode(&entry))
			if strings.HasPrefix(entry.Key, "informers/") || strings.HasPrefix(entry.Key, "_informers.") {
				continue
			}
			found++
			if want := reader.want[entry.Key]; want == nil || !bytes.Equal(entry.Value, want) {
				l.t.Errorf("after %s, %s: %s is %s, want %s", after, name, entry.Key, entry.Value, want)
			}
		}
		if found != len(reader.want) {
			l.t.Errorf("after %s, %s: %d objects, want %d", after, name, found, len(reader.want))
		}
		l.t.Logf("after %s, %s: %d objects", after, name, found)
	}
}

// The compacted topics and the bucket equal the list of the API server after whatever happens. With
// make test-view the broker is Apache Kafka.
func TestView(t *testing.T) {
	t.Parallel()
	l := newLab(t, ownCluster(t, "view", noControllers, "--etcd-compaction-interval=0"))
	broker, kafka := startBroker(t, l.dir)
	address, gate, server := gatedJetStream(t, filepath.Join(l.dir, "nats"))
	collections := []truth.Collection{
		truth.Core("pods", l.namespace), truth.Named("deployments", "apps", "v1", l.namespace),
		truth.Core("configmaps", l.namespace),
	}
	b := l.bridge("bridge", `
informers: [{name: app, resources: [pods, deployments.apps, configmaps], namespaces: ["${NS}"]}]
sinks:
  - name: view
    kafka:
      brokers: ["${KAFKA}"]
      view: true
      compression: gzip # kafkajs reads no lz4
      createTopics: {partitions: 3, replicationFactor: 1}
  - {name: now, nats: {servers: ["nats://${JETSTREAM}"], mode: kv, bucket: NOW}}
`, with(map[string]string{"KAFKA": broker, "JETSTREAM": address}))
	while := func(do func()) {
		t.Helper()
		churn := crash.StartChurn(l.ctx, l.client, l.namespace, rand.Uint64(), 1)
		time.Sleep(2 * time.Second)
		do()
		time.Sleep(time.Second)
		must(t, churn.Stop())
	}
	equal := func(after string) {
		t.Helper()
		eventually(t, "the view after "+after, 2*time.Minute, func() []string {
			return append(l.viewProblems(broker, collections),
				l.bucketProblems(server.ClientURL(), l.exists(collections))...)
		})
		l.requireReaders(after, broker, server.ClientURL(), collections)
	}
	l.createConfigMap("delete-is-undone", "1")
	l.start(b)
	while(func() {})
	equal("the first changes")

	while(func() { b.Kill(); l.start(b) })
	equal("a crash")

	while(func() { l.operate("restart-apiserver") })
	equal("an outage of the API server")

	while(func() {
		kafka.Shut()
		gate.Shut()
		time.Sleep(3 * time.Second)
		b.Kill() // what was in flight is in doubt
		must(t, b.Start())
		time.Sleep(time.Second)
		gate.Open()
		kafka.Open()
	})
	equal("an outage of the brokers, with a crash")

	b.Kill()
	while(func() {})
	l.operate("compact")
	l.operate("restart-apiserver")
	l.start(b)
	equal("expired versions")

	// Many changes are undone: a history that has overtaken the versions of before when the bridge
	// starts can't be distinguished from theirs.
	l.operate("snapshot?name=view")
	while(func() {})
	l.createConfigMap("create-is-undone", "1")
	l.deleteConfigMap("delete-is-undone")
	equal("changes that will be undone")
	l.stop(b)
	l.operate("restore?name=view")
	l.start(b)
	equal("a restored etcd")

	l.stop(b)
	must(t, os.RemoveAll(b.StateDir))
	while(func() {})
	l.start(b)
	equal("a lost state directory")
	l.stop(b)
}
