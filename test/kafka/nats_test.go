package kafkatest_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

// threeNATS is nats-server, with a stream of three replicas.
type threeNATS struct {
	t       *testing.T
	servers [3]*natsServer
	client  *natsclient.Conn
	js      jetstream.JetStream
}

const faultStream = "K8S"

func startThreeNATS(t *testing.T) threeBrokers {
	n := &threeNATS{t: t}
	dir := t.TempDir()
	var routes, clients []string
	for i := range n.servers {
		name := fmt.Sprint("n", i+1)
		n.servers[i] = &natsServer{
			address: fmt.Sprint("127.0.0.1:", testkit.Port(t)), route: fmt.Sprint("127.0.0.1:", testkit.Port(t)),
			config: filepath.Join(dir, name+".conf"), log: filepath.Join(dir, name+".log"), name: name, store: filepath.Join(dir, name),
		}
		routes = append(routes, "nats://"+n.servers[i].route)
		clients = append(clients, "nats://"+n.servers[i].address)
	}
	for _, s := range n.servers {
		// no_advertise: a bridge knows the servers by addresses of its network only
		must(t, os.WriteFile(s.config, fmt.Appendf(nil, "server_name: %s\nlisten: %q\nlog_file: %q\njetstream: {store_dir: %q}\n"+
			"cluster: {name: test, listen: %q, no_advertise: true, routes: [%s]}\n", s.name, s.address, s.log, s.store, s.route,
			strings.Join(routes, ", ")), 0o600))
		must(t, s.start())
		t.Cleanup(s.kill)
	}
	var err error
	n.client, err = natsclient.Connect(strings.Join(clients, ","), natsclient.MaxReconnects(-1),
		natsclient.ReconnectWait(100*time.Millisecond), natsclient.Timeout(5*time.Second))
	must(t, err)
	t.Cleanup(n.client.Close)
	n.js, err = jetstream.New(n.client)
	must(t, err)
	return n
}

func (n *threeNATS) sink(over *network, log *slog.Logger) sinks.Sink {
	config := nats.Config{}
	for _, s := range n.servers {
		config.Servers = append(config.Servers, settings.URL("nats://"+over.door(n.t, s.address)))
	}
	config.Stream.Replicas = 3
	s, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(config), Common: sinks.Common{Name: "broker", Encoding: sinks.Binary},
		Env: sinks.Env{Cluster: "test", Log: log},
	})
	must(n.t, err)
	return s
}

func (n *threeNATS) kill(broker int)        { n.servers[broker].kill() }
func (n *threeNATS) pause(broker int)       { n.servers[broker].signal(syscall.SIGSTOP) }
func (n *threeNATS) resume(broker int)      { n.servers[broker].signal(syscall.SIGCONT) }
func (n *threeNATS) start(broker int) error { return n.servers[broker].start() }

func (n *threeNATS) areWhole(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := n.js.Stream(ctx, faultStream)
	if err != nil {
		return false
	}
	cluster := s.CachedInfo().Cluster
	if cluster == nil || cluster.Leader == "" || len(cluster.Replicas) != 2 {
		return false
	}
	for _, peer := range cluster.Replicas {
		if !peer.Current || peer.Offline {
			return false
		}
	}
	return true
}

func (n *threeNATS) move(ctx context.Context) int {
	answer, err := n.client.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+faultStream, nil)
	if err != nil || !strings.Contains(string(answer.Data), `"success":true`) {
		return 0
	}
	pause(ctx, 5*time.Second) // each move costs the stream about a second
	return 1
}

func (n *threeNATS) reasons() []string {
	return []string{"is choosing a leader", "no ack in time", "can't be reached", "temporarily unavailable", "has no leader"}
}

// stored reads headers only.
func (n *threeNATS) stored() iter.Seq[stored] {
	return func(yield func(stored) bool) {
		s, err := n.js.Stream(n.t.Context(), faultStream)
		must(n.t, err)
		last := s.CachedInfo().State.LastSeq
		consumer, err := s.OrderedConsumer(n.t.Context(), jetstream.OrderedConsumerConfig{HeadersOnly: true})
		must(n.t, err)
		messages, err := consumer.Messages()
		must(n.t, err)
		defer messages.Stop()
		for at := uint64(0); at < last; {
			m, err := messages.Next(jetstream.NextMaxWait(time.Minute))
			must(n.t, err)
			meta, err := m.Metadata()
			must(n.t, err)
			at = meta.Sequence.Stream
			get := func(name string) string {
				value, err := url.PathUnescape(m.Headers().Get(name))
				must(n.t, err)
				return value
			}
			if !yield(stored{get("ce-type"), get("ce-partitionkey"), get("ce-resourceversion"), 0}) {
				return
			}
		}
	}
}

// natsServer is a nats-server of its own process: this program, with a configuration.
type natsServer struct {
	name, address, route, config, log, store string

	process *exec.Cmd
}

// natsConfigVariable has the path of the configuration with which this program is a nats-server.
const natsConfigVariable = "TEST_NATS_CONFIG"

// serveNATS is a nats-server. It ends when standard input does: so it does not outlive who has
// started it.
func serveNATS(config string) {
	options, err := server.ProcessConfigFile(config)
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(options)
	if err != nil {
		panic(err)
	}
	s.ConfigureLogger()
	s.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// start returns when clients can connect.
func (s *natsServer) start() error {
	s.process = exec.CommandContext(context.Background(), os.Args[0])
	s.process.Env = append(os.Environ(), natsConfigVariable+"="+s.config)
	s.process.Stderr = os.Stderr
	if _, err := s.process.StdinPipe(); err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		client, err := natsclient.Connect("nats://"+s.address, natsclient.Timeout(5*time.Second))
		if err == nil {
			client.Close()
			return nil
		}
		if time.Since(began) > patience {
			return fmt.Errorf("%s does not serve: %w", s.name, err)
		}
	}
}

// kill ends the server as kill -9 does.
func (s *natsServer) kill() {
	_ = s.process.Process.Kill() // fails only for one that has ended
	_ = s.process.Wait()         // its answer is that it was killed, or waited for before
}

func (s *natsServer) signal(which os.Signal) { _ = s.process.Process.Signal(which) }
