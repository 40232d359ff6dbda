package main

import (
	"io"
	"os"
	_ "time/tzdata" // time zones of CronJobs

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the components' own mains load these two as well
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// componentCommand is the hidden first argument with which the program starts itself as one of its
// components.
const componentCommand = "component"

// exitOrphaned is the exit code of a component whose parent has gone away.
const exitOrphaned = 3

// runComponent is the main function of a child process. It returns the exit code.
func runComponent(name string, args []string) int {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(exitOrphaned)
	}()
	// The components read their flags from os.Args themselves, and client-go takes the user agent
	// from os.Args[0]: the audit log shall say kube-scheduler, as in a real cluster.
	os.Args = append([]string{name}, args...)
	setKubernetesVersion()
	var command *cobra.Command
	switch name {
	case kubeAPIServer:
		command = apiserver.NewAPIServerCommand()
	case kubeControllerManager:
		command = controllermanager.NewControllerManagerCommand()
	case kubeScheduler:
		command = scheduler.NewSchedulerCommand()
	case kwokController:
		return runKwok()
	default:
		_, _ = io.WriteString(os.Stderr, "unknown component "+name+"\n")
		return 2
	}
	return cli.Run(command)
}
