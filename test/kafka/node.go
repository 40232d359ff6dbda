package kafkatest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Node is one broker of a cluster, and controller too.
type Node struct {
	ID int32
	// Address of the plain listener.
	Address string

	cluster    *Cluster
	dir        string
	controller string // address
	listeners  map[string]string
	process    *process
	starts     int
}

// format makes the node's storage.
func (n *Node) format() error {
	args := []string{"kafka.tools.StorageTool", "format", "-t", clusterID, "-c", n.propertiesFile()}
	for _, user := range n.cluster.options.SCRAM {
		args = append(args, "-S", user)
	}
	p, err := spawn(n.cluster.java("-Xmx96m", args...), n.logFile())
	if err != nil {
		return err
	}
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("format the storage of node %d: %s", n.ID, n.tail())
	}
	return nil
}

// Start runs the node, and returns before it serves.
func (n *Node) Start() (err error) {
	n.starts++
	n.process, err = spawn(n.cluster.java("-Xmx384m", "kafka.Kafka", n.propertiesFile()), n.logFile())
	return err
}

// Kill ends the node as kill -9 does.
func (n *Node) Kill() { n.process.kill() }

// Pause stops the node as SIGSTOP does, until Resume.
func (n *Node) Pause() { n.process.pause() }

// Resume ends a Pause.
func (n *Node) Resume() { n.process.resume() }

// FillDisk has the node's disk take nothing more, until the node is started again.
func (n *Node) FillDisk() error {
	pid := fmt.Sprint(n.process.cmd.Process.Pid)
	return exec.CommandContext(context.Background(), "prlimit", "--pid", pid, "--fsize=1").Run()
}

// Running reports whether the node's process has not ended.
func (n *Node) Running() bool { return n.process != nil && n.process.running() }

func (n *Node) propertiesFile() string { return filepath.Join(n.dir, "server.properties") }
func (n *Node) logFile() string        { return filepath.Join(n.dir, "log") }

// tail is the end of the node's log.
func (n *Node) tail() string {
	log, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-20):], []byte("\n")))
}

// writeProperties writes the node's configuration.
func (n *Node) writeProperties() error {
	o := &n.cluster.options
	var voters, protocols, listeners, advertised []string
	for _, other := range n.cluster.Nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", other.ID, other.controller))
	}
	for name, address := range n.listeners {
		listeners = append(listeners, name+"://"+address)
		advertised = append(advertised, name+"://"+address)
		protocols = append(protocols, name+":"+o.protocol(name))
	}
	replicas := min(3, len(n.cluster.Nodes))
	settings := map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        fmt.Sprint(n.ID),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"controller.listener.names":      controllerListener,
		"inter.broker.listener.name":     plainListener,
		"listeners":                      strings.Join(append(listeners, controllerListener+"://"+n.controller), ","),
		"advertised.listeners":           strings.Join(advertised, ","),
		"listener.security.protocol.map": strings.Join(append(protocols, controllerListener+":PLAINTEXT"), ","),
		"log.dirs":                       filepath.Join(n.dir, "data"),

		"auto.create.topics.enable":                "false",
		"offsets.topic.num.partitions":             "1",
		"offsets.topic.replication.factor":         fmt.Sprint(replicas),
		"transaction.state.log.replication.factor": fmt.Sprint(replicas),
		"transaction.state.log.min.isr":            "1",
		"group.initial.rebalance.delay.ms":         "0",
		// A dead broker is found out within seconds, so that a test of that takes as long.
		"broker.session.timeout.ms":                 "3000",
		"broker.heartbeat.interval.ms":              "500",
		"controller.quorum.election.timeout.ms":     "1000",
		"controller.quorum.fetch.timeout.ms":        "2000",
		"replica.lag.time.max.ms":                   "3000",
		"replica.fetch.wait.max.ms":                 "100",
		"num.io.threads":                            "2",
		"num.network.threads":                       "2",
		"log.cleaner.dedupe.buffer.size":            "2097152",
		"background.threads":                        "2",
		"auto.leader.rebalance.enable":              "false",
		"controlled.shutdown.enable":                "true",
		"group.coordinator.rebalance.protocols":     "classic,consumer",
		"transaction.partition.verification.enable": "true",
	}
	maps.Copy(settings, o.Properties)
	var lines []string
	for key, value := range settings {
		lines = append(lines, key+"="+value)
	}
	slices.Sort(lines)
	return os.WriteFile(n.propertiesFile(), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// WaitServing waits until the node says that it serves.
func (n *Node) WaitServing(deadline time.Time) error {
	for {
		log, err := os.ReadFile(n.logFile())
		switch {
		case err == nil && bytes.Count(log, []byte("Kafka Server started")) >= n.starts:
			return nil
		case !n.Running():
			return fmt.Errorf("node %d has ended: %s", n.ID, n.tail())
		case time.Now().After(deadline):
			return fmt.Errorf("node %d does not serve: %s", n.ID, n.tail())
		}
		time.Sleep(50 * time.Millisecond)
	}
}
