package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// binaries are the paths of the programs.
type binaries struct{ bridge, controlPlane string }

// build builds both programs, and keeps the control plane, which is the one that takes long.
func (d *demo) build(ctx context.Context) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	d.binaries = binaries{bridge: filepath.Join(d.dir, "bridge-binary"), controlPlane: filepath.Join(root, "bin", "controlplane")}
	err = d.screen.step("building the bridge", func(func(string)) error {
		return harness.BuildBridge(ctx, root, d.binaries.bridge, false)
	})
	if err != nil {
		return err
	}
	return d.screen.step("building Kubernetes for the demo: the first time takes some 4 minutes on two cores, later ones seconds", func(progress func(string)) error {
		return buildControlPlane(ctx, root, d.binaries.controlPlane, progress)
	})
}

// packagesOfKubernetes is about how many there are to compile, with all they depend on.
const packagesOfKubernetes = 2600

// buildControlPlane builds it and tells every second how far it is.
func buildControlPlane(ctx context.Context, root, out string, progress func(string)) error {
	compiled := &lines{}
	done := make(chan error, 1)
	go func() { done <- harness.BuildControlPlane(ctx, root, out, compiled) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(time.Second):
			progress(fmt.Sprintf("%d of at most %d packages", compiled.count.Load(), packagesOfKubernetes))
		}
	}
}

// lines is a writer that counts them: the compiler tells one for each package.
type lines struct{ count atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.count.Add(int64(bytes.Count(p, []byte("\n"))))
	return len(p), nil
}
