package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/internal/testkit"
)

// Every command that is asked for a missing topic reports so at once.
func TestMissingTopicCommands(t *testing.T) {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "k8s.dev-cluster.secrets"))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	file, admin := filepath.Join(t.TempDir(), "bridge.yaml"), testkit.Address(t)
	writeFile(t, file, "informers: [{name: all, resources: [pods, secrets]}]\nsinks: [{name: lake, kafka: {brokers: ["+strings.Join(kafka.ListenAddrs(), ",")+"]}}]\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	var stderr testkit.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"run", "--config", file, "--kubeconfig", kubeconfigFile(t), "--state-dir", t.TempDir(), "--admin-address", admin}, nil, io.Discard, &stderr)
	}()
	await := func(status int, words ...string) {
		t.Helper()
		var got string
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			answer, err := http.Get("http://" + admin + "/readyz")
			if err != nil {
				continue
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			got = answer.Status + ": " + string(body)
			found := answer.StatusCode == status
			for _, word := range words {
				found = found && strings.Contains(got, word)
			}
			if found {
				return
			}
		}
		t.Fatalf("never %d with %q; last %s\n%s", status, words, got, stderr.String())
	}
	await(http.StatusServiceUnavailable, "sink lake", "k8s.dev-cluster.pods", "kafka-topics.sh --create")
	var table, said testkit.Buffer
	if got := run(t.Context(), []string{"status", "--admin-address", admin}, nil, &table, &said); got != 1 {
		t.Errorf("bridge status gave exit code %d: %s", got, said.String())
	}
	for _, want := range []string{"not ready", "sink lake: there is no topic k8s.dev-cluster.pods", "lake  blocked"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("bridge status does not say %q:\n%s", want, table.String())
		}
	}
	if err := kafka.CreateTopic("k8s.dev-cluster.pods", 1, nil); err != nil {
		t.Fatal(err)
	}
	await(http.StatusOK)
	cancel(errors.New("the test is over"))
	if got := <-code; got != ExitClean {
		t.Errorf("exit code %d\n%s", got, stderr.String())
	}
}
