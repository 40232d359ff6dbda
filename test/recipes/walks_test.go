package recipes_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// binary is a program of this repository: that of a variable, or one that is built.
type buildFunc func(ctx context.Context, root, out string) error

func binary(variable, name string, build buildFunc) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		if path := os.Getenv(variable); path != "" {
			return filepath.Abs(path)
		}
		root, err := harness.Root()
		if err != nil {
			return "", err
		}
		out := filepath.Join(root, "bin", name)
		return out, build(context.Background(), root, out)
	})
}

var (
	bridgeBinary = binary("BRIDGE_BIN", "recipes/bridge",
		func(ctx context.Context, root, out string) error {
			return harness.BuildBridge(ctx, root, out, false)
		})
	controlPlaneBinary = binary("CONTROLPLANE_BIN", "controlplane",
		func(ctx context.Context, root, out string) error {
			return harness.BuildControlPlane(ctx, root, out, nil)
		})
)

// installed is a variable that make test-recipes sets.
func installed(t *testing.T, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		t.Skip(variable + " is not set: run make test-recipes")
	}
	return value
}

func controlPlane(t *testing.T, flags ...string) *harness.ControlPlane {
	t.Helper()
	path, err := controlPlaneBinary()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	plane, err := harness.StartControlPlane(ctx,
		harness.ControlPlaneConfig{Binary: path, Dir: t.TempDir(), Flags: flags})
	must(t, err)
	t.Cleanup(plane.Kill)
	return plane
}

// directory is where a reader works: with bin/bridge, and the packages of the page.
func directory(t *testing.T, page string) (dir string, env []string) {
	t.Helper()
	python, node := installed(t, "PYTHON"), installed(t, "NODE_DIR")
	path, err := bridgeBinary()
	must(t, err)
	dir = t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	must(t, os.Symlink(path, filepath.Join(dir, "bin", "bridge")))
	must(t, os.Symlink(filepath.Join(node, "node_modules"), filepath.Join(dir, "node_modules")))
	if page == "analytics.md" {
		must(t, os.Symlink(installed(t, "BRIDGE_TABLE"), filepath.Join(dir, "bin", "bridge-table")))
	}
	if jars[page] != "" {
		fetched := filepath.Join(installed(t, "JARS"), jars[page])
		must(t, os.Symlink(fetched, filepath.Join(dir, "jars")))
	}
	path = filepath.Dir(installed(t, "NATS_SERVER")) // nats-server is a program that pages name
	env = append(os.Environ(), "PATH="+filepath.Dir(python)+":"+path+":"+os.Getenv("PATH"))
	return dir, env
}

// walk does what a page says, from top to bottom, with one cluster.
func walk(t *testing.T, name string) {
	t.Helper()
	walkWith(t, name, map[string]string{}, func(string) []string {
		return []string{"KUBECONFIG=" + controlPlane(t).Kubeconfig}
	})
}

// walkWith is as walk. What it walks in is made by prepare, which gets the directory of the page's
// files and gives variables.
func walkWith(
	t *testing.T, name string, addresses map[string]string, prepare func(dir string) []string,
) {
	t.Helper()
	dir, env := directory(t, name)
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("not run: no kubectl on this machine")
	}
	broker(t, name, addresses)
	p := readPage(t, name, addresses)
	p.writeFiles(t, dir)
	p.createTopics(t, addresses)
	buildGo(t, p, dir)
	env = append(env, prepare(dir)...)
	s := newShell(t, dir, env)
	if p.names("flaky") {
		restartFlaky(t, env)
	}
	printed, ran := "", 0
	for _, b := range p.blocks {
		switch {
		case b.title != "", b.topic != "":
		case b.installs:
			checkInstalled(t, p, b.text)
		case b.language == "sh":
			printed = s.run(b.text)
			t.Logf("line %d printed:\n%s", b.line, printed)
			ran++
		case b.isPrinted:
			if !matches(b.text, printed) {
				t.Fatalf("%s:%d: the page says\n%s\nbut it prints\n%s\n%s",
					name, b.line, b.text, printed, s.errors())
			}
		default:
			t.Errorf("%s:%d: nothing runs this block", name, b.line)
		}
	}
	if ran < 3 {
		t.Errorf("only %d blocks were run", ran)
	}
}

// Where the pages have NATS and Kafka.
const (
	natsAddress  = "127.0.0.1:4222"
	kafkaAddress = "127.0.0.1:9092"
)

// goModule has the go.mod that programs in Go are built with.
const goModule = ".."

// buildGo builds the programs of a page that need packages, with the library of this tree, as the
// page does in its block that installs them.
func buildGo(t *testing.T, p *page, dir string) {
	t.Helper()
	for _, b := range p.blocks {
		if !b.installs {
			continue
		}
		for _, found := range goBuilds.FindAllStringSubmatch(b.text, -1) {
			files := strings.Fields(found[2])
			if found[2] == "." {
				files = []string{"main.go"}
			}
			args := []string{"build", "-o", filepath.Join(dir, found[1])}
			for _, file := range files {
				args = append(args, filepath.Join(dir, file))
			}
			cmd := exec.Command("go", args...)
			cmd.Dir = goModule
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("go build: %v\n%s", err, out)
			}
		}
	}
}

var goBuilds = regexp.MustCompile(`(?m)^go build -o (\S+) (.+)$`)

// jars is where the jars of a page are, of the pages that have some.
var jars = map[string]string{"kafka-streams.md": "kafka-streams", "flink.md": "flink"}

// broker starts Kafka where a page needs it: Apache Kafka for a page with jars, else kfake, which
// speaks the protocol.
func broker(t *testing.T, page string, addresses map[string]string) {
	t.Helper()
	switch {
	case jars[page] != "":
		addresses[kafkaAddress] = apacheKafka(t)
	case page == "functions.md":
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		must(t, err)
		t.Cleanup(cluster.Close)
		addresses[kafkaAddress] = cluster.ListenAddrs()[0]
	}
}

// apacheKafka starts a broker of Apache Kafka, with the program of test/kafka/broker.
func apacheKafka(t *testing.T) (address string) {
	t.Helper()
	cmd := exec.Command(installed(t, "KAFKA_BROKER"),
		"-lib", installed(t, "KAFKA_LIB"), "-dir", t.TempDir())
	cmd.Stderr = t.Output()
	alive, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = alive.Close()
		_ = cmd.Wait() // how it ends does not matter any more
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return strings.TrimSpace(address)
}

// restartFlaky does what the kubelet of a real cluster would: the container of the pod flaky ends,
// and is restarted. kwok, which plays the nodes here, has no containers.
func restartFlaky(t *testing.T, env []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	t.Cleanup(func() { stop(); done.Wait() })
	done.Go(func() {
		for restarts := 1; restarts <= 2 && ctx.Err() == nil; {
			const place = `"path":"/status/containerStatuses/0/restartCount","value":`
			patch := fmt.Sprintf(`[{"op":"test",%s%d},{"op":"replace",%s%d}]`,
				place, restarts-1, place, restarts)
			cmd := exec.CommandContext(ctx, "kubectl", "patch", "pod", "flaky", "-n", "shop",
				"--subresource=status", "--type=json", "-p", patch)
			cmd.Env = env
			if cmd.Run() == nil {
				restarts++
			}
			select {
			case <-time.After(500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
}

func TestAnalytics(t *testing.T) { walk(t, "analytics.md") }

func TestFunctions(t *testing.T) { walk(t, "functions.md") }

func TestKafkaStreams(t *testing.T) { walk(t, "kafka-streams.md") }

func TestController(t *testing.T) { walk(t, "controllers.md") }

func TestFlink(t *testing.T) { walk(t, "flink.md") }

func TestRedpandaConnect(t *testing.T) { walk(t, "redpanda-connect.md") }

func TestAudit(t *testing.T) { walk(t, "audit.md") }
