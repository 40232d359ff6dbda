package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/testkit"
)

// run is a command of a build that knows nothing of itself.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return Run(ctx, Build{}, args, stdin, stdout, stderr)
}

func kubeconfigFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig(newCluster(t))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Without a file, everything goes into a NATS server that any client can read: the promise of the
// README.
func TestRunWithoutFile(t *testing.T) {
	address := testkit.Address(t)
	t.Setenv("BRIDGE_SINKS_NATS_NATS_SERVERS", "nats://"+address)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var stderr testkit.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"run", "--kubeconfig", kubeconfigFile(t), "--state-dir", t.TempDir(), "--admin-address", "", "--log-format", "text"}, nil, io.Discard, &stderr)
	}()
	client := connect(t, "nats://"+address, &stderr)
	defer client.Close()
	js, err := client.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	subjects := map[string]bool{}
	for deadline := time.Now().Add(20 * time.Second); len(subjects) < 3 && time.Now().Before(deadline); {
		if sub, err := js.SubscribeSync("k8s.dev-cluster.core.>", natsgo.OrderedConsumer()); err == nil {
			for len(subjects) < 3 {
				msg, err := sub.NextMsg(200 * time.Millisecond)
				if err != nil {
					break
				}
				if strings.HasSuffix(msg.Subject, ".added") {
					subjects[msg.Subject] = true
				}
				if strings.Contains(string(msg.Data), "aHVudGVyMg") {
					t.Errorf("the value of a Secret left the cluster: %s", msg.Data)
				}
			}
			_ = sub.Unsubscribe()
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, want := range []string{"k8s.dev-cluster.core.v1.pods.shop.web-0.added", "k8s.dev-cluster.core.v1.pods.shop.web-1.added", "k8s.dev-cluster.core.v1.secrets.shop.db.added"} {
		if !subjects[want] {
			t.Errorf("nothing on %s; there is %v\n%s", want, subjects, stderr.String())
		}
	}
	cancel(errors.New("the test is over"))
	select {
	case got := <-code:
		if got != ExitClean {
			t.Errorf("exit code %d\n%s", got, stderr.String())
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not stop\n%s", stderr.String())
	}
	if !strings.Contains(stderr.String(), `cause="the test is over"`) {
		t.Errorf("the last line does not name the cause:\n%s", stderr.String())
	}
}

func connect(t *testing.T, url string, stderr *testkit.Buffer) *natsgo.Conn {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		client, err := natsgo.Connect(url)
		if err == nil {
			return client
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
	}
}

// An embedded server whose port is in use is refused.
func TestEmbeddedPortInUse(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("BRIDGE_SINKS_NATS_NATS_SERVERS", "nats://"+listener.Addr().String())
	var stderr testkit.Buffer
	code := run(t.Context(), []string{"run", "--kubeconfig", kubeconfigFile(t), "--state-dir", t.TempDir(), "--admin-address", ""}, nil, io.Discard, &stderr)
	if code != ExitRefused || !strings.Contains(stderr.String(), listener.Addr().String()+" is in use") {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
}

// An interrupted start leaves nothing behind.
func TestInterruptedStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr testkit.Buffer
	if code := run(ctx, []string{"watch", "--kubeconfig", kubeconfigFile(t)}, nil, io.Discard, &stderr); code != ExitClean {
		t.Errorf("exit code %d\n%s", code, stderr.String())
	}
}
