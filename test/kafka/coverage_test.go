package kafkatest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/resource"
	keptsink "github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

// coveragePartitions are those of a topic.
const coveragePartitions = 3

// bridge verify --coverage compares a topic with the history that the same bridge has kept. Each
// removed record is found: in a copy of the topic, whose offsets have no hole, it is missing; what
// was deleted from the beginning of a topic that has no limit was removed.
func TestCoverage(t *testing.T) {
	c := broker(t)
	program := buildProgram(t)
	records, dir := recorded(t, c)
	check := func(topic string) *verify.Report {
		t.Helper()
		return verifyCoverage(t, program, "kafka://"+c.Addresses()[0]+"/"+topic, dir)
	}

	whole := copyTopic(t, c, records)
	r := check(whole)
	if !r.OK || !r.Whole || len(r.Notes) > 0 || r.Covered == nil || r.Covered.Versions < r.Events/2 {
		t.Fatalf("a topic from which nothing was removed: %+v", r)
	}
	reported := 0
	for _, x := range r.Resources {
		reported += len(x.Reported)
	}
	if reported != 1 {
		t.Errorf("%d gaps, want one in the midst: %+v", reported, r.Resources)
	}
	for name, of := range map[string]func(own []*kgo.Record) []*kgo.Record{
		"any record":       func(own []*kgo.Record) []*kgo.Record { i := rand.IntN(len(own)); return own[i : i+1] },
		"the first record": func(own []*kgo.Record) []*kgo.Record { return own[:1] },
		"the last record":  func(own []*kgo.Record) []*kgo.Record { return own[len(own)-1:] },
		"all records":      func(own []*kgo.Record) []*kgo.Record { return own },
	} {
		t.Run(name+" of an object", func(t *testing.T) {
			left, gone := removeOf(records, 100, of)
			r := check(copyTopic(t, c, left))
			if !r.Whole || r.Faults[verify.Missing] != len(gone) || r.Faults[verify.Unrecorded]+r.Faults[verify.Undeclared] > 0 {
				t.Errorf("%v, want %d missing", r.Faults, len(gone))
			}
			for _, f := range r.Found {
				if f.Kind == verify.Missing && !gone[f.ID] {
					t.Errorf("%s is found, and was not removed", f.ID)
				}
			}
		})
	}
	t.Run("one record of the topic", func(t *testing.T) {
		left, gone := removeOf(records, 1, func(own []*kgo.Record) []*kgo.Record { return own[len(own)-1:] })
		if r := check(copyTopic(t, c, left)); len(r.Found) != 1 || r.Found[0].Kind != verify.Missing || !gone[r.Found[0].ID] {
			t.Errorf("found %+v, want %v", r.Found, gone)
		}
	})
	t.Run("the first records of the topic", func(t *testing.T) {
		deleteFirst(t, c, whole, check)
	})
}

// deleteFirst deletes the first record of each partition, then the one behind it, and so on.
func deleteFirst(t *testing.T, c *kafkatest.Cluster, topic string, check func(topic string) *verify.Report) {
	t.Helper()
	limit := func(retention string) {
		t.Helper()
		_, err := admin(t, c).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: &retention}}, topic)
		must(t, err)
	}
	limit("-1")
	for first := int64(1); first <= 34; first++ {
		offsets := kadm.Offsets{}
		for p := range int32(coveragePartitions) {
			offsets.AddOffset(topic, p, first, -1)
		}
		deleted, err := admin(t, c).DeleteRecords(t.Context(), offsets)
		must(t, errors.Join(err, deleted.Error()))
		r := check(topic)
		removed := map[string]bool{}
		for _, f := range r.Found {
			if f.Kind == verify.Removed {
				removed[f.At.Lane] = f.At.Offset == 0 && strings.HasPrefix(f.What, fmt.Sprint(first))
			}
		}
		if r.Whole || r.Faults[verify.Removed] != coveragePartitions || len(removed) != coveragePartitions {
			t.Fatalf("%d records of each partition are deleted: %v, %+v", first, r.Faults, r.Found)
		}
		for lane, isRight := range removed {
			if !isRight {
				t.Errorf("%d records of %s are deleted: %+v", first, lane, r.Found)
			}
		}
	}
	limit("3600000") // a limit may have removed them
	if r := check(topic); r.Faults[verify.Removed]+r.Faults[verify.Missing] > 0 || len(r.Notes) == 0 {
		t.Errorf("a topic with a limit: %v, notes %q", r.Faults, r.Notes)
	}
}

// recorded runs a bridge, which misses versions in the midst, and returns its records, and the
// directory of its history.
func recorded(t *testing.T, c *kafkatest.Cluster) (records []*kgo.Record, dir string) {
	t.Helper()
	dir = t.TempDir()
	topic := fmt.Sprintf("coverage%d", destinations.Add(1))
	p := newPipeline(t, c, func(k *kafka.Options) {
		k.Cluster, k.Topic = "test", topic
		k.CreateTopics = &kafka.CreateTopics{Partitions: coveragePartitions, ReplicationFactor: 1}
	})
	p.progress = 100 * time.Millisecond
	p.beside = func() []bridge.SinkConfig {
		kept, err := keptsink.New(keptsink.Options{Config: keptsink.Config{Dir: dir}})
		must(t, err)
		return []bridge.SinkConfig{{Name: "kept", Sink: kept}}
	}
	h := newHistory(p.server, 110, 100)
	run := func() {
		p.start()
		p.settle(time.Minute)
		for range 350 {
			h.change()
		}
		p.settle(time.Minute)
	}
	run()
	p.stop()
	for key, isAlive := range h.alive { // the bridge is down, and what happens then is forgotten
		if isAlive {
			h.put(key, "updated")
			h.put(key, "updated")
		}
	}
	p.server.Expire()
	run()
	testkit.Eventually(t, "the topic says that it has version "+string(p.server.Version()), func() bool {
		p.server.Streams.Bookmark()
		records = readAll(t, c, topic)
		return isReported(records, p.server.Version())
	})
	p.stop()
	return records, dir
}

// isReported reports whether each partition says that it has all up to a version.
func isReported(records []*kgo.Record, version resource.Version) bool {
	has := map[int32]bool{}
	for _, r := range records {
		if header(r, "ce_type") == "dev.kubebridge.informer.progress" && header(r, "ce_resourceversion") == string(version) {
			has[r.Partition] = true
		}
	}
	return len(has) == coveragePartitions
}

// removeOf takes records of so many objects away, and returns the rest, and the ids that are gone.
func removeOf(records []*kgo.Record, objects int, of func(own []*kgo.Record) []*kgo.Record) (left []*kgo.Record, gone map[string]bool) {
	byKey, keys := map[string][]*kgo.Record{}, []string{}
	for _, r := range records {
		if !strings.HasPrefix(header(r, "ce_type"), "dev.kubebridge.resource.") {
			continue // about the informer
		}
		key := string(r.Key)
		if byKey[key] = append(byKey[key], r); len(byKey[key]) == 1 {
			keys = append(keys, key)
		}
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	gone = map[string]bool{}
	for _, key := range keys[:objects] {
		for _, r := range of(byKey[key]) {
			gone[header(r, "ce_id")] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(records), func(r *kgo.Record) bool { return gone[header(r, "ce_id")] }), gone
}

// copyTopic puts records into a topic of their own, each into its partition.
func copyTopic(t *testing.T, c *kafkatest.Cluster, records []*kgo.Record) (topic string) {
	t.Helper()
	topic = fmt.Sprintf("coverage%d", destinations.Add(1))
	_, err := admin(t, c).CreateTopic(t.Context(), coveragePartitions, 1, nil, topic)
	must(t, err)
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addresses()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100*time.Millisecond))
	must(t, err)
	defer client.Close()
	copies := make([]*kgo.Record, len(records))
	for i, r := range records {
		copies[i] = &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp}
	}
	must(t, client.ProduceSync(t.Context(), copies...).FirstErr())
	return topic
}

// verifyCoverage runs bridge verify --coverage.
func verifyCoverage(t *testing.T, program, from, dir string) *verify.Report {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "verify", "--coverage", "--dir", dir, "--from", from, "-o", "json")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	r := new(verify.Report)
	if json.Unmarshal(out.Bytes(), r) != nil || !r.ReadToEnd || r.OK != (err == nil) {
		t.Fatalf("%v: %s%s", err, out.Bytes(), stderr.Bytes())
	}
	return r
}
