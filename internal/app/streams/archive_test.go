package streams

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

func newJetStream(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	testkit.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := natsclient.Connect(s.ClientURL(), natsclient.Timeout(time.Minute))
	testkit.OK(t, err)
	t.Cleanup(nc.Close)
	js, err = jetstream.New(nc)
	testkit.OK(t, err)
	return s.ClientURL(), js
}

// newStream makes a stream. What publish sends is no event, and is counted by an archive only.
func newStream(
	t *testing.T, js jetstream.JetStream, name string,
) (stream jetstream.Stream, publish func(count int)) {
	t.Helper()
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"},
	})
	testkit.OK(t, err)
	return stream, func(count int) {
		for range count {
			_, err := js.Publish(t.Context(), name+".other", nil)
			testkit.OK(t, err)
		}
	}
}

// newArchiver is an archiver, and a reader of what it archives.
func newArchiver(t *testing.T, from string) (*archiver, source.Reader) {
	t.Helper()
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { _ = db.Close() })
	reader, err := source.Open(t.Context(), source.Config{From: from})
	testkit.OK(t, err)
	t.Cleanup(reader.Close)
	return &archiver{
		writer: db.Writer, disk: db.Maintenance, source: source.Config{From: from},
	}, reader
}

// An archive that follows a stream marks what the stream has removed, also where no message was
// left to read behind it.
func TestArchiveOfEmptiedStream(t *testing.T) {
	url, js := newJetStream(t)
	stream, publish := newStream(t, js, "K8S")
	a, reader := newArchiver(t, url+"/K8S")
	read := func(messages, removed int) {
		t.Helper()
		testkit.OK(t, a.readToEnd(t.Context(), reader))
		if a.report.Messages != messages || a.report.Removed != removed {
			t.Errorf("%d messages and %d removed stretches, want %d and %d", a.report.Messages,
				a.report.Removed, messages, removed)
		}
	}
	publish(10)
	read(10, 0)
	publish(10)
	testkit.OK(t, stream.Purge(t.Context()))
	read(10, 1)
	if next := a.stored.Lanes["K8S"].Next; next != 21 {
		t.Errorf("the next message is %d, want 21", next)
	}
	publish(1)
	read(11, 1)
}

// What a stream has removed was stored after the newest message that was read of that stream, not
// of the one that is read next.
func TestTimesOfRemoval(t *testing.T) {
	url, js := newJetStream(t)
	emptied, publish := newStream(t, js, "K8S-A")
	_, publishOther := newStream(t, js, "K8S-B")
	a, reader := newArchiver(t, url+"/K8S-*")
	publish(1)
	publishOther(1)
	testkit.OK(t, a.readToEnd(t.Context(), reader))
	publish(1)
	testkit.OK(t, emptied.Purge(t.Context()))
	publishOther(1)
	batches := make(chan *archiveBatch, 1)
	testkit.OK(t, a.fill(t.Context(), reader, batches, len(reader.Removed())))
	b, newest := <-batches, a.stored.Newest
	if !newest["K8S-A"].Before(newest["K8S-B"]) {
		t.Fatalf("the test shows nothing: %v", newest)
	}
	if len(b.events) != 1 || !b.events[0].Time.Equal(newest["K8S-A"]) {
		t.Errorf("marks %+v, want one from %v on", b.events, newest["K8S-A"])
	}
}

// A stream that was recreated is read from its start. What the one before had, and was not read, is
// a gap in the archive.
func TestArchiveOfRecreatedStream(t *testing.T) {
	url, js := newJetStream(t)
	_, publish := newStream(t, js, "K8S")
	dir := t.TempDir()
	archive := func() (holes []*query.Notice) {
		t.Helper()
		_, err := Archive(t.Context(), ArchiveOptions{
			SourceOptions: SourceOptions{From: url + "/K8S"}, Dir: dir, Once: true, Log: slog.New(slog.DiscardHandler),
		})
		testkit.OK(t, err)
		db, err := history.Read(history.Options{Dir: dir})
		testkit.OK(t, err)
		defer func() { testkit.OK(t, db.Close()) }()
		holes, err = db.Questions.Coverage.HolesOf(db.Questions.Resources.Units(), time.Time{}, time.Time{})
		testkit.OK(t, err)
		return holes
	}
	publish(3)
	if holes := archive(); len(holes) > 0 {
		t.Errorf("before: %+v", holes)
	}
	lastRead := time.Now()
	testkit.OK(t, js.DeleteStream(t.Context(), "K8S"))
	_, publish = newStream(t, js, "K8S")
	publish(2)
	for range 2 {
		holes := archive()
		if len(holes) != 1 || holes[0].Reason != query.ReasonRecreated || holes[0].Begins().After(lastRead) || holes[0].Until.Before(lastRead) {
			t.Errorf("%+v, want one that %v is in", holes, lastRead)
		}
	}
}
