package table

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

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
