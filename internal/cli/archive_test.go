package cli

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
	"github.com/kubebridge/bridge/internal/testkit"
)

// An archive of a stream equals a history that was written in this process, also when the archiver
// is killed again and again while the stream grows.
func TestArchive(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	t.Parallel()
	program := buildBridge(t)
	events := testkit.Events(t, 11, 200, 20)
	want := historyOf(t, events)
	t.Run("of JetStream, over 20 kills", func(t *testing.T) {
		url := jetStream(t)
		storeEvents(t, url, events[:100])
		dir := filepath.Join(t.TempDir(), "archive")
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			killArchiver(t, program, url+"/K8S", dir)
		}()
		for i := 100; i < len(events); i += 100 {
			storeEvents(t, url, events[i:min(i+100, len(events))])
		}
		<-killed
		archiveOnce(t, program, "--from", url+"/K8S", "--dir", dir)
		requireSameHistory(t, dir, want)
		t.Run("a second run reads nothing again", func(t *testing.T) {
			if out := archiveOnce(t, program, "--from", url+"/K8S", "--dir", dir); !strings.Contains(out, ": 0 messages read:") {
				t.Error(out)
			}
		})
	})
	t.Run("of Kafka, over 20 kills", func(t *testing.T) {
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
		dir := filepath.Join(t.TempDir(), "archive")
		from := "kafka://" + c.ListenAddrs()[0] + "/k8s.prod.*"
		killArchiver(t, program, from, dir)
		archiveOnce(t, program, "--from", from, "--dir", dir)
		requireSameHistory(t, dir, want)
	})
	t.Run("of a file, and again", func(t *testing.T) {
		var file bytes.Buffer
		for i := range events {
			file.Write(append(event.AppendStructured(nil, &events[i]), '\n'))
		}
		dir := filepath.Join(t.TempDir(), "archive")
		for range 2 {
			cmd := exec.CommandContext(t.Context(), program, "archive", "--from", "-", "--dir", dir)
			cmd.Stdin = bytes.NewReader(file.Bytes())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		requireSameHistory(t, dir, want)
	})
	t.Run("two archivers of one directory are refused", func(t *testing.T) {
		dir := t.TempDir()
		db, err := history.Open(history.Options{Dir: dir})
		testkit.OK(t, err)
		defer db.Close()
		out, err := exec.CommandContext(t.Context(), program, "archive", "--from", jetStream(t)+"/K8S", "--dir", dir).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != ExitRefused || !strings.Contains(string(out), "is written by another process") { //nolint:errorlint // it is not wrapped
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("what the stream has removed meanwhile is reported", func(t *testing.T) {
		url := jetStream(t)
		storeEvents(t, url, events[:200])
		dir := filepath.Join(t.TempDir(), "archive")
		archiveOnce(t, program, "--from", url+"/K8S", "--dir", dir)
		storeEvents(t, url, events[200:400])
		purge(t, url, 300)
		if out := archiveOnce(t, program, "--from", url+"/K8S", "--dir", dir); !strings.Contains(out, "1 removed stretch") {
			t.Error(out)
		}
		db, err := history.Read(history.Options{Dir: dir})
		testkit.OK(t, err)
		defer db.Close()
		found := 0
		for m, err := range db.Questions.Coverage.Notices(db.Questions.Resources.Units()[0], time.Time{}, time.Time{}) {
			testkit.OK(t, err)
			if m.Reason == query.ReasonRemoved {
				found++
				if m.From != "201" || m.To != "298" && m.To != "299" || m.Until.Before(m.Time) {
					t.Errorf("%+v", m)
				}
			}
		}
		if found != 1 {
			t.Errorf("%d marks", found)
		}
	})
}

// killArchiver starts an archiver again and again, and kills each after a while.
func killArchiver(t *testing.T, program, from, dir string) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		cmd := exec.CommandContext(t.Context(), program, "archive", "--from", from, "--dir", dir)
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond) // of real time: the process has its own
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // with the signal
	}
}

func archiveOnce(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, append([]string{"archive", "--once"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func jetStream(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	testkit.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL()
}

// historyOf is what a history of events holds: by object, its versions in their order.
func historyOf(t *testing.T, events []event.Event) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(t, err)
	var list []*event.Event
	for i := range events {
		list = append(list, &events[i])
	}
	_, err = db.Writer.Append(t.Context(), list)
	testkit.OK(t, err)
	testkit.OK(t, db.Close())
	return contents(t, dir)
}

func contents(t *testing.T, dir string) map[string][]string {
	t.Helper()
	db, err := history.Read(history.Options{Dir: dir})
	testkit.OK(t, err)
	defer db.Close()
	all := map[string][]string{}
	for _, u := range db.Questions.Resources.Units() {
		for o, err := range db.Questions.Objects.All(u, "") {
			testkit.OK(t, err)
			for v, err := range db.Questions.Objects.Versions(&o, time.Time{}, time.Time{}) {
				testkit.OK(t, err)
				all[o.String()] = append(all[o.String()], string(event.AppendStructured(nil, &v.Event)))
			}
		}
	}
	return all
}

func requireSameHistory(t *testing.T, dir string, want map[string][]string) {
	t.Helper()
	got := contents(t, dir)
	if len(got) != len(want) {
		t.Errorf("%d objects, want %d", len(got), len(want))
	}
	for object, versions := range want {
		if strings.Join(got[object], "\n") != strings.Join(versions, "\n") {
			t.Fatalf("%s:\n%s\nwant\n%s", object, strings.Join(got[object], "\n"), strings.Join(versions, "\n"))
		}
	}
}

// purge removes what is before a sequence.
func purge(t *testing.T, url string, before uint64) {
	t.Helper()
	testkit.OK(t, storedStream(t, url).Purge(t.Context(), jetstream.WithPurgeSequence(before)))
}

// storedStream returns the stream of jetStream's server.
func storedStream(t *testing.T, url string) jetstream.Stream {
	t.Helper()
	conn, err := natsgo.Connect(url)
	testkit.OK(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	testkit.OK(t, err)
	stream, err := js.Stream(t.Context(), "K8S")
	testkit.OK(t, err)
	return stream
}
