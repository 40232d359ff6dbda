package table

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	lib "github.com/apache/iceberg-go/table"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/apache/iceberg-go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

var kills = flag.Int("table.kills", 20, "how often TestKills kills the writer")

// Every message is one row, however often the writer is killed, and wherever.
func TestKills(t *testing.T) {
	events := testkit.Events(t, 11, 200, 20)
	t.Run("of JetStream", func(t *testing.T) {
		url := jetStream(t)
		store := newStream(t, url, sinks.Binary)
		store(events[:100])
		dir := tableDir(t)
		stored := make(chan struct{})
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			kill(t, url+"/K8S", dir)
		}()
		go func() {
			defer close(stored)
			for i := 100; i < len(events); i += 100 {
				store(events[i:min(i+100, len(events))])
				time.Sleep(time.Duration(*kills) * 10 * time.Millisecond) // of real time: processes have their own
			}
		}()
		<-killed
		<-stored
		out := runProgram(t, append([]string{"run", "--once", "--from", url + "/K8S"}, placeArgs(dir)...)...)
		t.Log(out)
		requireRows(t, dir, events)
		t.Logf("%d commits", openTest(t, dir).head())
		if out := runProgram(t, append([]string{"run", "--once", "--from", url + "/K8S"}, placeArgs(dir)...)...); !strings.HasPrefix(out, "0 messages, 0 rows") {
			t.Error(out)
		}
	})
	t.Run("of Kafka", func(t *testing.T) {
		from := kafkaTopics(t, events)
		dir := tableDir(t)
		kill(t, from, dir)
		runProgram(t, append([]string{"run", "--once", "--from", from}, placeArgs(dir)...)...)
		requireRows(t, dir, events)
	})
}

func kafkaTopics(t *testing.T, events []event.Event) (from string) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	testkit.OK(t, err)
	t.Cleanup(c.Close)
	s, err := kafka.New(kafka.Options{
		Config: testkit.WithDefaults(kafka.Config{
			CreateTopics: &kafka.CreateTopics{Partitions: 3, ReplicationFactor: 1},
		}),
		Common:     sinks.Common{Encoding: sinks.Binary},
		Connection: kafka.Connection{Brokers: c.ListenAddrs()},
	})
	testkit.OK(t, err)
	testkit.OK(t, s.Open(t.Context()))
	publishAll(t, s, events)
	testkit.OK(t, s.Close())
	return "kafka://" + c.ListenAddrs()[0] + "/k8s.prod.*"
}

// kill starts a writer again and again, and kills each after a while.
func kill(t *testing.T, from, dir string) {
	random := rand.New(rand.NewPCG(5, 6))
	for range *kills {
		cmd := program(t, append([]string{"run", "--from", from, "--interval", "1ms"}, placeArgs(dir)...)...)
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		time.Sleep(time.Duration(50+random.IntN(700)) * time.Millisecond) // of real time: the process has its own
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // with the signal
	}
}

// faultyCatalog fails commits, before or after the catalog has them.
type faultyCatalog struct {
	lib.CatalogIO
	before, after func() error
}

func (f *faultyCatalog) CommitTable(
	ctx context.Context, name lib.Identifier, reqs []lib.Requirement, updates []lib.Update,
) (lib.Metadata, string, error) {
	if f.before != nil {
		if err := f.before(); err != nil {
			return nil, "", err
		}
	}
	meta, at, err := f.CatalogIO.CommitTable(ctx, name, reqs, updates)
	if err == nil && f.after != nil {
		if err := f.after(); err != nil {
			return nil, "", err
		}
	}
	return meta, at, err
}

// A commit whose answer is lost is looked for, and not sent twice. One that was lost is sent
// again.
func TestLostAnswer(t *testing.T) {
	events := testkit.Events(t, 3, 8, 5)
	url := jetStream(t)
	newStream(t, url, sinks.Binary)(events)
	for _, of := range []string{"the request", "the answer"} {
		t.Run(of+" is lost every other time", func(t *testing.T) {
			dir := tableDir(t)
			calls := 0
			fails := func() error {
				if calls++; calls%2 == 1 {
					return errors.New("connection reset by peer")
				}
				return nil
			}
			o := options(t, url+"/K8S", dir)
			o.Interval = time.Nanosecond
			o.wrap = func(c lib.CatalogIO) lib.CatalogIO {
				if of == "the answer" {
					return &faultyCatalog{c, nil, fails}
				}
				return &faultyCatalog{c, fails, nil}
			}
			report, err := Run(t.Context(), o)
			testkit.OK(t, err)
			if report.Commits < 40 || calls < 40 {
				t.Errorf("%d commits, %d calls", report.Commits, calls)
			}
			requireRows(t, dir, events)
		})
	}
}

// Of two writers one ends, and the other one's rows are all there, once.
func TestTwoWriters(t *testing.T) {
	events := testkit.Events(t, 3, 10, 5)
	url := jetStream(t)
	newStream(t, url, sinks.Binary)(events)
	dir := tableDir(t)
	openTest(t, dir)
	var errs [2]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			o := options(t, url+"/K8S", dir)
			o.Interval = time.Nanosecond
			_, errs[i] = Run(t.Context(), o)
		})
	}
	wg.Wait()
	lost := 0
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrOtherWriter) {
			t.Error(err)
		} else if err != nil {
			lost++
		}
	}
	if lost == 0 {
		t.Error("both writers did all")
	}
	_, err := Run(t.Context(), options(t, url+"/K8S", dir))
	testkit.OK(t, err)
	requireRows(t, dir, events)
}

// A repeat is no row, also where the writer was started between the two.
func TestRepeats(t *testing.T) {
	events := testkit.Events(t, 3, 20, 10)
	url := jetStream(t)
	store := newStream(t, url, sinks.Flat)
	dir := tableDir(t)
	repeats := 0
	for i := 0; i < len(events); i += 20 {
		store(events[i:min(i+20, len(events))])
		store(events[max(0, i-30):min(i+20, len(events))])
		report, err := Run(t.Context(), options(t, url+"/K8S", dir))
		testkit.OK(t, err)
		repeats += report.Repeats
	}
	if repeats < len(events) {
		t.Errorf("%d repeats", repeats)
	}
	requireRows(t, dir, events)
}

// A stream that was recreated is not continued as if it were the one before.
func TestRecreated(t *testing.T) {
	events := testkit.Events(t, 3, 20, 10)
	url := jetStream(t)
	store := newStream(t, url, sinks.Binary)
	dir := tableDir(t)
	store(events[:50])
	_, err := Run(t.Context(), options(t, url+"/K8S", dir))
	testkit.OK(t, err)
	testkit.OK(t, streamOf(t, url).DeleteStream(t.Context(), "K8S"))
	store(events[50:])
	_, err = Run(t.Context(), options(t, url+"/K8S", dir))
	if !errors.Is(err, source.ErrOther) || !strings.Contains(err.Error(), "--recreated") {
		t.Fatal(err)
	}
	requireRows(t, dir, events[:50])
	o := options(t, url+"/K8S", dir)
	o.Recreated = true
	_, err = Run(t.Context(), o)
	testkit.OK(t, err)
	ids := column(t, openTest(t, dir), iceberg.NotEqualTo(iceberg.Reference("op"), "gap"), "id")
	if len(ids) != len(events) {
		t.Errorf("%d rows, want %d", len(ids), len(events))
	}
	if gaps := column(t, openTest(t, dir), iceberg.EqualTo(iceberg.Reference("op"), "gap"), "id"); len(gaps) != 1 {
		t.Errorf("gaps %v", gaps)
	}
}

// about is an event about the informer workloads, of deployments.
func about(op event.Op, version, epoch int, at time.Time, data string) event.Event {
	e := event.Event{
		ID: fmt.Sprintf("workloads/deployments/%s/%d/%d", op, version, epoch), Source: "/clusters/prod", Informer: "workloads",
		Type: "dev.kubebridge.informer." + string(op), Op: op, Time: at, PartitionKey: "informers/deployments",
		Sequence: fmt.Sprintf("%08d.%020d", epoch, version), Data: []byte(data),
		ObjectAttributes: event.ObjectAttributes{
			APIVersion: "apps/v1", Kind: "Deployment", Resource: "deployments", ResourceVersion: fmt.Sprint(version),
		},
		Routing: event.Routing{
			Cluster: "prod", Group: "apps", Version: "v1", CompactionKey: fmt.Sprint("informers/", op),
		},
	}
	return e
}

// deployment is an event about a Deployment.
func deployment(op event.Op, name string, version, epoch int, at time.Time) event.Event {
	e := about(op, version, epoch, at, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"replicas":%d}}`, name, version))
	e.ID, e.Type = fmt.Sprintf("uid-%s/%d", name, version), "dev.kubebridge.resource."+string(op)
	if epoch > 0 {
		e.ID += fmt.Sprint("/epoch/", epoch)
	}
	e.PartitionKey, e.CompactionKey = "deployments.apps/shop/"+name, ""
	e.Namespace, e.Name, e.UID = "shop", name, "uid-"+name
	return e
}

// stepsOf are the rows of the table coverage, in the order of time.
func stepsOf(t *testing.T, dir string) (steps []string) {
	t.Helper()
	for batch, err := range openTable(t, dir, coverageSpec).scan(t.Context(), iceberg.AlwaysTrue{}) {
		testkit.OK(t, err)
		for i := range int(batch.NumRows()) {
			text := func(name string) string { return textColumn(batch, name).Value(i) }
			at := func(name string) string {
				c := batch.Column(batch.Schema().FieldIndices(name)[0]).(*array.Timestamp)
				if c.IsNull(i) {
					return "open"
				}
				return fmt.Sprint(int(c.Value(i).ToTime(arrow.Microsecond).Sub(morning) / time.Second))
			}
			steps = append(steps, strings.TrimSpace(fmt.Sprintf("%s-%s at %s to %s %s",
				text("fromversion"), text("toversion"), at("since"), at("until"), text("gap"))))
		}
		batch.Release()
	}
	return steps
}

// The stream is recreated while the writer is stopped, and has more than the writer has read. The
// table claims nothing of that time, until a first list.
func TestRecreatedCoverage(t *testing.T) {
	second := func(n int) time.Time { return morning.Add(time.Duration(n) * time.Second) }
	url, dir := jetStream(t), tableDir(t)
	store := newStream(t, url, sinks.Binary)
	run := func(isRecreated bool, events ...event.Event) {
		t.Helper()
		store(events)
		o := options(t, url+"/K8S", dir)
		o.Recreated = isRecreated
		_, err := Run(t.Context(), o)
		testkit.OK(t, err)
	}
	recreate := func() { testkit.OK(t, streamOf(t, url).DeleteStream(t.Context(), "K8S")) }
	require := func(when string, want ...string) {
		t.Helper()
		if got := stepsOf(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	run(false, deployment(event.Added, "web", 1, 0, second(1)), about(event.Synced, 2, 0, second(2), `{"version":"2","first":true}`),
		deployment(event.Updated, "web", 4, 0, second(4)), about(event.Progress, 5, 0, second(5), `{"version":"5"}`))
	require("at first", "2-5 at 2 to 5")
	recreate()
	run(true, about(event.Gap, 9, 0, second(9), `{"reason":"lost","from":"","to":"9"}`),
		deployment(event.Updated, "api", 10, 0, second(10)), about(event.Progress, 11, 0, second(11), `{"version":"11"}`),
		about(event.Gap, 12, 0, second(12), `{"reason":"expired","from":"11","to":"12"}`),
		about(event.Synced, 13, 0, second(13), `{"version":"13"}`))
	require("after a loss", "2-5 at 2 to 5", "5- at 5 to open recreated")
	run(false, about(event.Gap, 20, 1, second(20), `{"reason":"forgotten","from":"","to":"20"}`),
		about(event.Synced, 20, 1, second(21), `{"version":"20","first":true}`),
		about(event.Progress, 25, 1, second(25), `{"version":"25"}`))
	require("after a reset", "2-5 at 2 to 5", "5-20 at 5 to 20 recreated", "-20 at 20 to 21 forgotten", "20-25 at 21 to 25")
	recreate() // with the state: epochs begin again
	run(true, deployment(event.Added, "web", 1, 0, second(1)), about(event.Synced, 30, 0, second(30), `{"version":"30","first":true}`),
		about(event.Progress, 35, 0, second(35), `{"version":"35"}`),
		about(event.Gap, 36, 0, second(40), `{"reason":"lost","from":"","to":"36"}`),
		about(event.Progress, 45, 0, second(45), `{"version":"45"}`))
	steps := []string{
		"2-5 at 2 to 5", "5-20 at 5 to 20 recreated", "-20 at 20 to 21 forgotten",
		"20-25 at 21 to 25", "25-30 at 25 to 30 recreated", "30-35 at 30 to 35", "35- at 35 to open lost",
	}
	require("after a loss within a stream", steps...)
	run(false, deployment(event.Updated, "web", 46, 0, second(46)))
	require("after a start", steps...)
}

// What the stream has removed before it was read is a gap.
func TestRemoved(t *testing.T) {
	events := testkit.Events(t, 3, 20, 10)
	url := jetStream(t)
	store := newStream(t, url, sinks.Binary)
	dir := tableDir(t)
	store(events[:50])
	_, err := Run(t.Context(), options(t, url+"/K8S", dir))
	testkit.OK(t, err)
	store(events[50:100])
	stream, err := streamOf(t, url).Stream(t.Context(), "K8S")
	testkit.OK(t, err)
	testkit.OK(t, stream.Purge(t.Context(), jetstream.WithPurgeSequence(80)))
	_, err = Run(t.Context(), options(t, url+"/K8S", dir))
	testkit.OK(t, err)
	gaps := column(t, openTest(t, dir), iceberg.EqualTo(iceberg.Reference("op"), "gap"), "data")
	if len(gaps) != 1 || !strings.Contains(gaps[0], `"from":"51","to":"79"`) {
		t.Errorf("gaps %v", gaps)
	}
}
