package deploy_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/kubebridge/bridge/deploy/container"
)

// workDir holds what the tests build; it is removed at the end.
var workDir string

func TestMain(m *testing.M) {
	container.Init()
	var err error
	if workDir, err = os.MkdirTemp("", "bridge-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	if *update {
		err = errors.Join(copyMonitoring(), writeValuesSchema()) // first: other things are made of them
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	stopCluster()
	if err := errors.Join(err, os.RemoveAll(workDir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}
