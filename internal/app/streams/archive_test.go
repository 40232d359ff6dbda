package streams

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

// An archive that follows a stream marks what the stream has removed, also where no message was
// left to read behind it.
func TestArchiveOfEmptiedStream(t *testing.T) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	testkit.OK(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := natsclient.Connect(s.ClientURL(), natsclient.Timeout(time.Minute))
	testkit.OK(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	testkit.OK(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "K8S", Subjects: []string{"k8s.>"},
	})
	testkit.OK(t, err)
	publish := func(count int) {
		for range count {
			_, err := js.Publish(t.Context(), "k8s.other", nil)
			testkit.OK(t, err)
		}
	}

	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	t.Cleanup(func() { _ = db.Close() })
	a := &archiver{
		writer: db.Writer, disk: db.Maintenance,
		source: source.Config{From: s.ClientURL() + "/K8S"},
	}
	reader, err := source.Open(t.Context(), a.source)
	testkit.OK(t, err)
	t.Cleanup(reader.Close)
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
