package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// subject is a program that is measured.
type subject struct {
	name  string
	kafka bool
	// command line of it, in a directory of its own, for an API server and a broker.
	command func(b *bench, dir, kubeconfig, address string) ([]string, error)
}

var (
	bridgeToNATS  = subject{name: "bridge → JetStream", command: natsBridge}
	bridgeToKafka = subject{name: "bridge → Kafka", kafka: true, command: kafkaBridge}
	dynamicClient = subject{name: "client-go, dynamic → JetStream", command: clientGo()}
	typedClient   = subject{name: "client-go, typed → JetStream", command: clientGo("-typed")}
)

func clientGo(options ...string) func(*bench, string, string, string) ([]string, error) {
	return func(b *bench, _, kubeconfig, address string) ([]string, error) {
		return append([]string{b.program("clientgo"), "-kubeconfig", kubeconfig, "-nats", address}, options...), nil
	}
}

const configuration = `cluster: bench
kubernetes: {kubeconfig: %q}
state: {dir: %q}
admin: {address: ""}
informers: [{name: pods, resources: [pods]}]
sinks: [{name: out, %s}]
`

func natsBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	return b.bridge(dir, kubeconfig, fmt.Sprintf("nats: {servers: [%q], embedded: false, stream: {name: %s}}", address, streamName))
}

func kafkaBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	return b.bridge(dir, kubeconfig, fmt.Sprintf("kafka: {brokers: [%q], createTopics: {partitions: 6, replicationFactor: 1}, compression: none}", strings.Split(address, ",")[0]))
}

func (b *bench) bridge(dir, kubeconfig, sink string) ([]string, error) {
	path := filepath.Join(dir, "bridge.yaml")
	text := fmt.Sprintf(configuration, kubeconfig, filepath.Join(dir, "state"), sink)
	return []string{b.program("bridge"), "run", "--config", path}, os.WriteFile(path, []byte(text), 0o600)
}
