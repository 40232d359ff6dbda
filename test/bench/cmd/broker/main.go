// Command broker runs a NATS server with JetStream on disk, or kfake, for benchmarks: a process of
// its own, so that its cost is not the client's. It prints its address.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	dir := flag.String("dir", "", "directory of the JetStream store; empty: run kfake")
	flag.Parse()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	stop, err := start(*dir)
	if err != nil {
		log.Fatal(err)
	}
	<-ended
	stop()
}

func start(dir string) (stop func(), err error) {
	if dir == "" {
		return startKafka()
	}
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoSigs: true, MaxPayload: 8 << 20})
	if err != nil {
		return nil, err
	}
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		return nil, errors.New("the NATS server does not start")
	}
	fmt.Println(ns.ClientURL())
	return func() { ns.Shutdown(); ns.WaitForShutdown() }, nil
}

func startKafka() (stop func(), err error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(6))
	if err != nil {
		return nil, err
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	return cluster.Close, nil
}
