package e2e_test

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kubebridge/bridge/test/e2e/crash"
)

// The long form of the failover test may run with Apache Kafka itself; make test-failover makes
// these.
var (
	apacheBroker = flag.String("failover.kafka", "", "program that runs an Apache Kafka broker (test/kafka/broker), in place of kfake")
	apacheJars   = flag.String("failover.kafka.lib", "", "directory of its jars")
)

// startBroker gives the address of a Kafka broker: kfake behind a gate, or Apache Kafka where it
// was asked for, which is always reachable.
func startBroker(t *testing.T, dir string) (address string, gate *crash.Gate) {
	t.Helper()
	gate = &crash.Gate{}
	if *apacheBroker == "" {
		return startKafka(t, kfake.ListenFn(gate.Listen)).ListenAddrs()[0], gate
	}
	cmd := exec.Command(*apacheBroker, "-lib", *apacheJars, "-dir", filepath.Join(dir, "kafka"))
	cmd.Stderr = os.Stderr
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
	return strings.TrimSpace(address), gate
}
