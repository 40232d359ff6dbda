package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/testkit"
)

// TestUndeliveredSend has a NATS stream refuse every event of a bridge for its size, takes the
// limit away, and sends the events again.
func TestUndeliveredSend(t *testing.T) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	testkit.OK(t, err)
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	conn, err := natsgo.Connect(s.ClientURL())
	testkit.OK(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	testkit.OK(t, err)
	small := jetstream.StreamConfig{
		Name: "K8S", Subjects: []string{"k8s.>"}, MaxMsgSize: 64, Duplicates: time.Millisecond * 100,
	}
	stream, err := js.CreateStream(t.Context(), small)
	testkit.OK(t, err)

	dir := t.TempDir()
	file, state := filepath.Join(dir, "bridge.yaml"), filepath.Join(dir, "state")
	testkit.OK(t, os.WriteFile(file, fmt.Appendf(nil, `
kubernetes: {kubeconfig: %s}
state: {dir: %s}
admin: {address: "%s"}
informers: [{name: workloads, resources: [pods], sinks: [{name: bus}, {name: view}]}]
sinks:
  - {name: bus, oversize: [], deadLetterWait: 1s, nats: {servers: ["%s"], stream: {name: K8S, manage: "off"}}}
  - {name: view, nats: {servers: ["%s"], mode: kv, bucket: pods}}
`, kubeconfigFile(t), state, testkit.Address(t), s.ClientURL(), s.ClientURL()), 0o600))
	t.Setenv("BRIDGE_CONFIG", file)
	ctx, cancel := context.WithCancel(t.Context())
	var log testkit.Buffer
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"run"}, nil, io.Discard, &log) }()
	defer func() {
		cancel()
		if code := <-ended; code != ExitClean {
			t.Errorf("exit code %d\n%s", code, log.String())
		}
	}()
	files := func() []string {
		list, err := filepath.Glob(filepath.Join(state, "undelivered", "bus", "*.json"))
		testkit.OK(t, err)
		return list
	}
	undo := func(args ...string) (code int, stdout, stderr string) {
		var out, errs testkit.Buffer
		code = run(ctx, append([]string{"undelivered"}, args...), nil, &out, &errs)
		return code, out.String(), errs.String()
	}
	testkit.Eventually(t, "two pods and the end of the list are kept", func() bool { return len(files()) >= 3 })
	held := len(files())

	t.Run("what is refused again stays, with the reason", func(t *testing.T) {
		code, out, errs := undo("send", "--all", "--sink", "bus")
		if code != ExitFailed || out != "sent 0 events\n" || len(files()) != held ||
			len(tooLarge.FindAllString(errs, -1)) != held || !strings.Contains(errs, "still undelivered") {
			t.Errorf("exit code %d, %d files\n%s%s", code, len(files()), out, errs)
		}
	})
	t.Run("a sink that is paused is refused at once", func(t *testing.T) {
		if code := run(ctx, []string{"pause", "sink", "bus"}, nil, io.Discard, io.Discard); code != ExitClean {
			t.Fatal(code)
		}
		if code, _, errs := undo("send", "--all"); code != ExitFailed || !strings.Contains(errs, "bridge resume sink bus") {
			t.Errorf("exit code %d: %s", code, errs)
		}
		if code := run(ctx, []string{"resume", "sink", "bus"}, nil, io.Discard, io.Discard); code != ExitClean {
			t.Fatal(code)
		}
	})
	t.Run("once the stream takes them they are sent with their ids, and removed", func(t *testing.T) {
		want := eventIDs(t, files())
		large := small
		large.MaxMsgSize = -1
		_, err := js.UpdateStream(t.Context(), large)
		testkit.OK(t, err)
		// The sink asks for the limit of its stream from time to time.
		var code int
		var out, errs string
		testkit.Eventually(t, "all is sent", func() bool {
			code, out, errs = undo("send", "--all")
			return len(files()) == 0
		})
		if code != ExitClean {
			t.Errorf("exit code %d\n%s%s", code, out, errs)
		}
		info, err := stream.Info(t.Context())
		testkit.OK(t, err)
		var got []string
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			m, err := stream.GetMsg(t.Context(), seq)
			testkit.OK(t, err)
			got = append(got, m.Header.Get("Ce-Id")+m.Header.Get("ce-id"))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the stream has %q, want %q", got, want)
		}
	})
	t.Run("a view is not sent what is old", func(t *testing.T) {
		testkit.OK(t, os.MkdirAll(filepath.Join(state, "undelivered", "view"), 0o700))
		old := filepath.Join(state, "undelivered", "view", "ab.json")
		text := `{"sink":"view","reason":"x","event":{"specversion":"1.0","id":"a/1","source":"/clusters/c","type":"dev.kubebridge.resource.added"}}`
		testkit.OK(t, os.WriteFile(old, []byte(text), 0o600))
		code, _, errs := undo("send", "ab")
		if code != ExitFailed || !strings.Contains(errs, "keeps the newest state of each object") {
			t.Errorf("exit code %d: %s", code, errs)
		}
		if _, err := os.Stat(old); err != nil {
			t.Error(err)
		}
	})
	t.Run("where no bridge runs nothing is sent", func(t *testing.T) {
		code, out, errs := undo("send", "--all", "--admin-address", "127.0.0.1:1")
		if code != ExitRefused || out != "sent 0 events\n" || !strings.Contains(errs, "no bridge answers") {
			t.Errorf("exit code %d\n%s%s", code, out, errs)
		}
	})
}

var tooLarge = regexp.MustCompile("message is too large|message size exceeds")

var anID = regexp.MustCompile(`"id":"([^"]+)"`)

// eventIDs are the ids of the events in files, sorted.
func eventIDs(t *testing.T, files []string) (ids []string) {
	t.Helper()
	for _, name := range files {
		text, err := os.ReadFile(name)
		testkit.OK(t, err)
		ids = append(ids, anID.FindStringSubmatch(string(text))[1])
	}
	slices.Sort(ids)
	return ids
}
