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
	idle  int // resources more that the API server serves
	// command line of it, in a directory of its own, for an API server and a broker.
	command func(b *bench, dir, kubeconfig, address string) ([]string, error)
}

var (
	floorToNATS   = subject{name: "floor → JetStream", command: floorProgram}
	bridgeToNATS  = subject{name: "bridge → JetStream", command: natsBridge}
	bridgeToKafka = subject{name: "bridge → Kafka", kafka: true, command: kafkaBridge}
	bridgeToTwo   = subject{name: "bridge → two streams of JetStream", command: twoSinkBridge}
	bridgeOfMany  = subject{name: fmt.Sprintf("bridge, %d idle resources", idleResources), idle: idleResources, command: allBridge}
	bridgeOfFew   = subject{name: "bridge, \"*\"", command: allBridge}
	dynamicClient = subject{name: "client-go, dynamic → JetStream", command: clientGo()}
	typedClient   = subject{name: "client-go, typed → JetStream", command: clientGo("-typed")}
)

func clientGo(options ...string) func(*bench, string, string, string) ([]string, error) {
	return func(b *bench, _, kubeconfig, address string) ([]string, error) {
		return append([]string{b.program("clientgo"), "-kubeconfig", kubeconfig, "-nats", address}, options...), nil
	}
}

func floorProgram(b *bench, _, kubeconfig, address string) ([]string, error) {
	return []string{b.program("floor"), "-kubeconfig", kubeconfig, "-nats", address}, nil
}

// idleResources is how many resources more a bridge has of which one is measured.
const idleResources = 500

const configuration = `cluster: bench
kubernetes: {kubeconfig: %q}
state: {dir: %q}
admin: {address: %q}
informers: [{name: pods, resources: [%s]}]
sinks: [%s]
`

func natsBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	return b.bridge(dir, kubeconfig, "pods", natsSink(address))
}

func natsSink(address string) string {
	return fmt.Sprintf("{name: out, nats: {servers: [%q], embedded: false, stream: {name: %s}}}", address, streamName)
}

// twoSinkBridge publishes the same events into a second stream.
func twoSinkBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	return b.bridge(dir, kubeconfig, "pods", natsSink(address)+fmt.Sprintf(
		`, {name: second, nats: {servers: [%q], embedded: false, stream: {name: SECOND}, subject: "second.{cluster}.{group}.{version}.{resource}.{namespace}.{name}.{op}"}}`, address))
}

// allBridge follows everything that is served.
func allBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	b.admin = "http://" + admin
	return b.configured(dir, kubeconfig, admin, `"*"`, natsSink(address))
}

func kafkaBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	return b.bridge(dir, kubeconfig, "pods", fmt.Sprintf("{name: out, kafka: {brokers: [%q], createTopics: {partitions: 6, replicationFactor: 1}, compression: none}}", strings.Split(address, ",")[0]))
}

func (b *bench) bridge(dir, kubeconfig, resources, sinks string) ([]string, error) {
	return b.configured(dir, kubeconfig, "", resources, sinks)
}

func (b *bench) configured(dir, kubeconfig, admin, resources, sinks string) ([]string, error) {
	path := filepath.Join(dir, "bridge.yaml")
	text := fmt.Sprintf(configuration, kubeconfig, filepath.Join(dir, "state"), admin, resources, sinks)
	return []string{b.program("bridge"), "run", "--config", path}, os.WriteFile(path, []byte(text), 0o600)
}
