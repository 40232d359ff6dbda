package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	node "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	heartbeat "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	pod "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
)

const kwokController = "kwok-controller"

// kwokStages are kwok's own descriptions of what happens to nodes and pods: a node is ready at once
// and renews its lease, a pod is running as soon as it is scheduled, done if it belongs to a Job,
// and gone when it is deleted.
var kwokStages = []string{
	node.DefaultNodeInit,
	heartbeat.DefaultNodeHeartbeatWithLease,
	pod.DefaultPodReady,
	pod.DefaultPodComplete,
	pod.DefaultPodDelete,
}

func writeKwokConfig(l layout) error {
	return writeFile(l.kwokConfig(), []byte(strings.Join(kwokStages, "\n---\n")))
}

func kwokFlags(l layout) []string {
	return []string{
		"--kubeconfig=" + l.kubeconfig(kwokController),
		"--config=" + l.kwokConfig(),
		"--manage-all-nodes=true",
		"--node-lease-duration-seconds=40", // a kubelet's default
		"--node-ip=10.0.0.1",
		"--cidr=10.0.0.0/16",
	}
}

// runKwok does what kwok's own main function does, which cannot be imported.
func runKwok() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Kubernetes puts flags into the global set, which every command inherits, and its --version is
	// not a bool: kwok would refuse to start.
	pflag.CommandLine = pflag.NewFlagSet(kwokController, pflag.ContinueOnError)
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true // the others are those of the command below
	flags.Usage = func() {}
	ctx, _ = log.InitFlags(ctx, flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		fmt.Fprintln(os.Stderr, "read kwok's configuration:", err)
		return 1
	}
	command := cmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		return 1
	}
	return 0
}
