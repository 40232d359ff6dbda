package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const (
	clusterID          = "a3ViZWJyaWRnZS10ZXN0cw"
	controllerListener = "CONTROLLER"
	plainListener      = "PLAIN"
)

// Options of a Cluster.
type Options struct {
	// Nodes is how many; default 1.
	Nodes int
	// Dir holds the nodes' storage and logs. Required.
	Dir string
	// Lib is the directory of Kafka's jars. Required.
	Lib string
	// Listeners are further listeners by name, each with its protocol (SSL, SASL_SSL).
	Listeners map[string]string
	// SCRAM are users as StorageTool takes them: SCRAM-SHA-256=[name=bridge,password=secret].
	SCRAM []string
	// Properties are added to each node's configuration.
	Properties map[string]string
}

func (o *Options) protocol(listener string) string {
	if listener == plainListener {
		return "PLAINTEXT"
	}
	return o.Listeners[listener]
}

// Cluster is a number of brokers on this machine.
type Cluster struct {
	Nodes   []*Node
	options Options
}

// Start makes a cluster and waits until all nodes serve. Close ends it.
func Start(o Options) (*Cluster, error) {
	c := &Cluster{options: o}
	for i := range max(1, o.Nodes) {
		n := &Node{ID: int32(i + 1), cluster: c, dir: filepath.Join(o.Dir, fmt.Sprint("node", i+1)), listeners: map[string]string{}}
		names := []string{plainListener}
		for name := range o.Listeners {
			names = append(names, name)
		}
		ports, err := freeAddresses(len(names) + 1)
		if err != nil {
			return nil, err
		}
		for i, name := range names {
			n.listeners[name] = ports[i]
		}
		n.Address, n.controller = n.listeners[plainListener], ports[len(names)]
		c.Nodes = append(c.Nodes, n)
	}
	if err := c.run(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// run formats and starts all nodes at the same time.
func (c *Cluster) run() error {
	errs := make([]error, len(c.Nodes))
	var starting sync.WaitGroup
	for i, n := range c.Nodes {
		starting.Go(func() {
			errs[i] = func() error {
				if err := os.MkdirAll(n.dir, 0o700); err != nil {
					return err
				}
				if err := n.writeProperties(); err != nil {
					return err
				}
				if err := n.format(); err != nil {
					return err
				}
				return n.Start()
			}()
		})
	}
	starting.Wait()
	for _, n := range c.Nodes {
		if errors.Join(errs...) == nil {
			errs = append(errs, n.WaitServing(time.Now().Add(2*time.Minute)))
		}
	}
	return errors.Join(errs...)
}

// Close ends all nodes at once: their storage is of no more use.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		if n.process != nil {
			n.Kill()
		}
	}
}

// Addresses of the nodes' plain listeners.
func (c *Cluster) Addresses() (all []string) {
	for _, n := range c.Nodes {
		all = append(all, n.Address)
	}
	return all
}

// Listener gives the address of a further listener of the first node.
func (c *Cluster) Listener(name string) string { return c.Nodes[0].listeners[name] }

// java is a command of a JVM with Kafka's jars. It compiles little, which is what a short life is
// best served with.
func (c *Cluster) java(heap string, args ...string) *exec.Cmd {
	all := append([]string{
		heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", filepath.Join(c.options.Lib, "*"),
	}, args...)
	return exec.CommandContext(context.Background(), "java", all...) // it ends when it is asked to, or with us
}

// Java is a command that runs a source file with Kafka's jars.
func (c *Cluster) Java(source string, args ...string) *exec.Cmd {
	return c.java("-Xmx128m", append([]string{source}, args...)...)
}

// freeAddresses are addresses that nobody listens on at this moment. Kafka has to be given its
// ports before it starts.
func freeAddresses(n int) (all []string, err error) {
	for range n {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after all were found, so that they differ
		all = append(all, l.Addr().String())
	}
	return all, nil
}
