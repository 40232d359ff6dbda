package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const productModule = "module github.com/kubebridge/bridge\n"

// Root is the directory of the repository, found from the working directory upwards.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(mod, []byte(productModule)) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s lies not in the repository of bridge: no go.mod above it begins with %q", start, strings.TrimSpace(productModule))
		}
	}
}

// BuildBridge builds the product to the path out. race builds it with the race detector.
func BuildBridge(ctx context.Context, root, out string, race bool) error {
	args := []string{"build", "-o", out}
	if race {
		args = append(args, "-race")
	}
	return goBuild(ctx, root, io.Discard, append(args, "./cmd/bridge")...)
}

// BuildControlPlane builds the control plane to the path out. The first time that takes minutes:
// all of Kubernetes is compiled; progress gets a line with the name of each package, for none nil.
func BuildControlPlane(ctx context.Context, root, out string, progress io.Writer) error {
	if progress == nil {
		progress = io.Discard
	}
	// Without debug information linking takes half the time.
	return goBuild(ctx, filepath.Join(root, "test", "kubernetes"), progress, "build", "-v", "-ldflags=-s -w", "-o", out, ".")
}

func goBuild(ctx context.Context, dir string, progress io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var output bytes.Buffer
	cmd.Stderr = io.MultiWriter(&output, progress)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("go %s in %s: %w\n%s", strings.Join(args, " "), dir, err, output.String())
	}
	return nil
}
