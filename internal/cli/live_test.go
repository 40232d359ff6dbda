package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
)

// review answers a SelfSubjectAccessReview: everything is allowed but what is in the namespace
// vault.
func review(w http.ResponseWriter, r *http.Request) {
	var ask map[string]any
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	spec := ask["spec"].(map[string]any)["resourceAttributes"].(map[string]any)
	ask["status"] = map[string]any{"allowed": spec["namespace"] != "vault", "reason": "RBAC: the vault is shut"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(ask)
}

// startBrokers runs a NATS server with a stream THEIRS that others use, and KEPT, Kafka with a
// topic for pods, and an endpoint: what is below /closed is unavailable.
func startBrokers(t *testing.T, env *testscript.Env) {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		Users: []*server.User{{Username: "bridge", Password: "right"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	env.Defer(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	conn, err := natsgo.Connect(s.ClientURL(), natsgo.UserInfo("bridge", "right"))
	if err != nil {
		t.Fatal(err)
	}
	env.Defer(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	theirs := jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{"theirs.>"}, Retention: jetstream.WorkQueuePolicy}
	kept := jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept.>"}, Duplicates: time.Hour}
	for _, stream := range []jetstream.StreamConfig{theirs, kept} {
		if _, err := js.CreateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "k8s.dev-cluster.pods"))
	if err != nil {
		t.Fatal(err)
	}
	env.Defer(kafka.Close)
	compacted := kafkago.TopicConfig{
		Topic: "compacted", NumPartitions: 1, ReplicationFactor: 1,
		ConfigEntries: []kafkago.ConfigEntry{{ConfigName: "cleanup.policy", ConfigValue: "compact"}},
	}
	topics := &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{compacted}}
	client := &kafkago.Client{Addr: kafkago.TCP(kafka.ListenAddrs()...)}
	if made, err := client.CreateTopics(t.Context(), topics); err != nil || made.Errors["compacted"] != nil {
		t.Fatal(made, err)
	}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodOptions {
			t.Errorf("the endpoint was sent a %s", r.Method)
		}
		if strings.HasPrefix(r.URL.Path, "/closed") {
			http.Error(w, "closed for today", http.StatusServiceUnavailable)
		}
	}))
	env.Defer(endpoint.Close)
	env.Setenv("ENDPOINT", endpoint.URL)
	env.Setenv("NATS", s.ClientURL())
	env.Setenv("KAFKA", strings.Join(kafka.ListenAddrs(), ","))
	env.Values["protect"] = func(name string) error {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			return err
		}
		protected := stream.CachedInfo().Config
		protected.DenyDelete, protected.DenyPurge = true, true
		_, err = js.UpdateStream(t.Context(), protected)
		return err
	}
	env.Values["streams"] = func() (names []string) {
		for name := range js.StreamNames(t.Context()).Name() {
			names = append(names, name)
		}
		return names
	}
}

// scriptStreams compares the names of the NATS server's streams: streams THEIRS.
func scriptStreams(ts *testscript.TestScript, _ bool, args []string) {
	if got := strings.Join(ts.Value("streams").(func() []string)(), " "); got != strings.Join(args, " ") {
		ts.Fatalf("there are streams %s, want %s", got, args)
	}
}

// scriptProtect does what nats stream edit --deny-delete --deny-purge does: protect KEPT.
func scriptProtect(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Value("protect").(func(string) error)(args[0]))
}
