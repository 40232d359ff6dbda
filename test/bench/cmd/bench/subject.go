package main

import (
	"cmp"
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
	bridgeOfUnits = subject{name: fmt.Sprintf("bridge, %d resources in %d namespaces", unitResources, unitNamespaces), idle: unitResources, command: unitBridge}
	bridgeOfBody  = subject{name: "bridge → JetStream, every body written", command: bodyBridge}
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

// unitResources in each of unitNamespaces, selected by their names, are a watch each.
const unitResources, unitNamespaces = 10, 100

const configuration = `cluster: bench
kubernetes: {kubeconfig: %q}
state: {dir: %q, bodiesPerSecond: %d}
admin: {address: %q}
informers: [{name: pods, resources: [%s], namespaces: [%s]}]
sinks: [%s]
`

// settings are what the configurations differ in.
type settings struct {
	admin, resources, namespaces, sinks string
	bodiesPerSecond                     int
}

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
	return b.configured(dir, kubeconfig, settings{admin: admin, resources: `"*"`, sinks: natsSink(address)})
}

// unitBridge follows the idle resources, in namespaces that it has by their names.
func unitBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	b.admin = "http://" + admin
	var resources, namespaces []string
	for i := range unitResources {
		resources = append(resources, fmt.Sprintf("idle%d.bench.test", i))
	}
	for i := range unitNamespaces {
		namespaces = append(namespaces, fmt.Sprintf("namespace-%d", i))
	}
	return b.configured(dir, kubeconfig, settings{
		admin: admin, resources: strings.Join(resources, ", "), namespaces: strings.Join(namespaces, ", "), sinks: natsSink(address),
	})
}

// bodyBridge writes the body of each update with its version, in a flood too.
func bodyBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	return b.configured(dir, kubeconfig, settings{resources: "pods", sinks: natsSink(address), bodiesPerSecond: 1_000_000})
}

func kafkaBridge(b *bench, dir, kubeconfig, address string) ([]string, error) {
	return b.bridge(dir, kubeconfig, "pods", fmt.Sprintf("{name: out, kafka: {brokers: [%q], createTopics: {partitions: 6, replicationFactor: 1}, compression: none}}", strings.Split(address, ",")[0]))
}

func (b *bench) bridge(dir, kubeconfig, resources, sinks string) ([]string, error) {
	return b.configured(dir, kubeconfig, settings{resources: resources, sinks: sinks})
}

func (b *bench) configured(dir, kubeconfig string, c settings) ([]string, error) {
	path := filepath.Join(dir, "bridge.yaml")
	text := fmt.Sprintf(configuration, kubeconfig, filepath.Join(dir, "state"), cmp.Or(c.bodiesPerSecond, 1000), c.admin, c.resources, c.namespaces, c.sinks)
	return []string{b.program("bridge"), "run", "--config", path}, os.WriteFile(path, []byte(text), 0o600)
}
