// Command bridge streams every change of chosen Kubernetes resources into NATS or Kafka as CloudEvents.
//
// It takes in a configuration, and puts the parts in internal/ together as it says; what runs is package internal/bridge. Exit
// codes: 0 after a clean stop, 1 when something failed while it ran, 2 when it could not start: a wrong flag or
// configuration, an unknown resource, no API server, an address in use.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
