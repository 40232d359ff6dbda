// Command broker runs one Apache Kafka broker for tests of another module. It writes the broker's
// address to standard output when it serves, and ends when standard input does: so it does not
// outlive who has started it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	kafkatest "github.com/kubebridge/bridge/test/kafka"
)

func main() {
	lib := flag.String("lib", "", "directory of Kafka's jars")
	dir := flag.String("dir", "", "directory of the broker's storage and logs")
	flag.Parse()
	if err := run(*lib, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "broker:", err)
		os.Exit(1)
	}
}

func run(lib, dir string) error {
	cluster, err := kafkatest.Start(kafkatest.Options{Dir: dir, Lib: lib})
	if err != nil {
		return err
	}
	defer cluster.Close()
	if _, err := fmt.Println(cluster.Addresses()[0]); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
