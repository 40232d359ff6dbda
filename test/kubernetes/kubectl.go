package main

import (
	"os"
	"path/filepath"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// kubectlName is the name of a link to this program that makes it kubectl, of the version of the
// API server.
const kubectlName = "kubectl"

func calledAsKubectl() bool { return filepath.Base(os.Args[0]) == kubectlName }

// runKubectl is kubectl's main function. It ends the process for an error.
func runKubectl() {
	setKubernetesVersion()
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
