package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	d.binaries = binaries{bridge: filepath.Join(root, "bin", "bridge"), controlPlane: filepath.Join(root, "bin", "controlplane")}
	err = d.screen.step("building bin/bridge: the first time takes some minutes", func(progress func(string)) error {
		return watched(progress, "%d packages", func(compiled io.Writer) error {
			return makeBridge(ctx, root, compiled)
		})
	})
	if err != nil || d.yours {
		return err
	}
	return d.screen.step("building Kubernetes for the demo: the first time takes some 4 minutes on two cores, later ones seconds", func(progress func(string)) error {
		ofAll := fmt.Sprintf("%%d of at most %d packages", packagesOfKubernetes)
		return watched(progress, ofAll, func(compiled io.Writer) error {
			return harness.BuildControlPlane(ctx, root, d.binaries.controlPlane, compiled)
		})
	})
}

// packagesOfKubernetes is about how many there are to compile, with all they depend on.
const packagesOfKubernetes = 2600

// makeBridge leaves what `make build` leaves, so that the next command of a newcomer finds it.
// compiled gets a line with the name of each package.
func makeBridge(ctx context.Context, root string, compiled io.Writer) error {
	cmd := exec.CommandContext(ctx, "make", "--silent", "-C", root, "build")
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -v"))
	var output bytes.Buffer
	both := io.MultiWriter(&output, compiled)
	cmd.Stdout, cmd.Stderr = both, both // of two writers, two goroutines would fill the buffer at once
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make build: %w\n%s", err, output.String())
	}
	return nil
}

// watched builds, and reports every second how many packages were compiled.
func watched(progress func(string), format string, build func(compiled io.Writer) error) error {
	compiled := &lines{}
	done := make(chan error, 1)
	go func() { done <- build(compiled) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(time.Second):
			progress(fmt.Sprintf(format, compiled.count.Load()))
		}
	}
}

// lines is a writer that counts them: the compiler prints one for each package.
type lines struct{ count atomic.Int64 }

func (l *lines) Write(p []byte) (int, error) {
	l.count.Add(int64(bytes.Count(p, []byte("\n"))))
	return len(p), nil
}
