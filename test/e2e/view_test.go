package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
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
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
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

// viewProblems are the differences between the topics and the objects that exist.
func (l *lab) viewProblems(broker string, collections []truth.Collection) (problems []string) {
	ctx, cancel := context.WithTimeout(l.ctx, testPatience)
	defer cancel()
	var topics []string
	for _, c := range collections {
		topics = append(topics, "k8s."+clusterName+"."+strings.Split(c.String(), ".")[0])
	}
	table, err := tableOf(ctx, broker, topics...)
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

// A compacted topic equals the list of the API server after whatever happens. With make test-view the
// broker is Apache Kafka.
func TestKafkaView(t *testing.T) {
	t.Parallel()
	l := newLab(t, startOnce("view", noControllers, "--etcd-compaction-interval=0")(t))
	broker := startBroker(t, l.dir)
	collections := []truth.Collection{
		truth.Core("pods", l.namespace), truth.Named("deployments", "apps", "v1", l.namespace),
		truth.Core("configmaps", l.namespace),
	}
	b := l.bridge("bridge", `
informers: [{name: app, resources: [pods, deployments.apps, configmaps], namespaces: ["${NS}"]}]
sinks:
  - {name: view, kafka: {brokers: ["${KAFKA}"], view: true, createTopics: {partitions: 3, replicationFactor: 1}}}
`, with(map[string]string{"KAFKA": broker}))
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
			return l.viewProblems(broker, collections)
		})
	}
	l.createConfigMap("delete-is-undone", "1")
	l.start(b)
	while(func() {})
	equal("the first changes")

	while(func() { b.Kill(); l.start(b) })
	equal("a crash")

	while(func() { l.operate("restart-apiserver") })
	equal("an outage of the API server")

	b.Kill()
	while(func() {})
	l.operate("compact")
	l.operate("restart-apiserver")
	l.start(b)
	equal("expired versions")

	// Many changes are undone: a history that has overtaken the versions of before when the bridge
	// starts can't be told from theirs.
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
