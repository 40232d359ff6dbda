// Command bridge streams every change of chosen Kubernetes resources into NATS, Kafka or HTTP as
// CloudEvents. Package internal/cli has its commands, package internal/app what they run.
package main

import (
	"context"
	"os"

	"github.com/kubebridge/bridge/internal/cli"
)

// The linker sets these in a release: the facts that the go tool finds depend on how the source
// tree was obtained.
var release, revision, revisionTime string

func main() {
	build := cli.Build{Version: release, Commit: revision, Time: revisionTime}
	os.Exit(cli.Run(context.Background(), build, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
