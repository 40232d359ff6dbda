package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/deploy/licences"
)

// build is what is being released.
type build struct {
	root, dist string // directories
	repository string // of the image
	push       bool
	version    string // v1.2.3
	commit     string
	date       time.Time // of the commit
	binaries   []binary
	modules    []licences.Module
	licence    []byte
}

// binary is one that GoReleaser made for linux.
type binary struct{ path, arch string }

func main() {
	var b build
	flag.StringVar(&b.root, "root", "..", "directory of the repository")
	flag.StringVar(&b.dist, "dist", "../dist", "directory with what GoReleaser made")
	flag.StringVar(&b.repository, "repository", "ghcr.io/kubebridge/bridge",
		"where the image is pushed, and what it is called")
	flag.BoolVar(&b.push, "push", false, "push the image to its repository")
	flag.Parse()
	if err := b.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (b *build) run(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"dist", b.readDist},
		{"licences", b.readLicences},
		{"image", b.image},
		{"chart", b.chart},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Printf("%-10s %s\n", step.what, time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// readDist reads what GoReleaser says of the release, and finds its binaries.
func (b *build) readDist(ctx context.Context) error {
	var facts struct{ Version string }
	var artifacts []struct{ Path, Goos, Goarch, Type string }
	if err := errors.Join(b.readJSON("metadata.json", &facts), b.readJSON("artifacts.json", &artifacts)); err != nil {
		return err
	}
	for _, a := range artifacts {
		if a.Type == "Binary" && a.Goos == "linux" {
			// GoReleaser names paths from the directory of the repository.
			path := filepath.Join(b.dist, strings.TrimPrefix(filepath.ToSlash(a.Path), "dist/"))
			b.binaries = append(b.binaries, binary{path, a.Goarch})
		}
	}
	// GoReleaser lists them as they were ready.
	slices.SortFunc(b.binaries, func(x, y binary) int { return strings.Compare(x.arch, y.arch) })
	if facts.Version == "" || len(b.binaries) == 0 {
		return fmt.Errorf("%s has no version or no binary for linux: make it by `make snapshot`", b.dist)
	}
	b.version = "v" + facts.Version // its commit is "none" in a clone without a remote
	return b.readDate(ctx)
}

func (b *build) readJSON(name string, content any) error {
	text, err := os.ReadFile(filepath.Join(b.dist, name))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, content)
}

func (b *build) readDate(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "git", "log", "-1", "--format=%H %ct")
	cmd.Dir, cmd.Stderr = b.root, os.Stderr
	said, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git log: %w", err)
	}
	var seconds int64
	if _, err := fmt.Sscan(string(said), &b.commit, &seconds); err != nil {
		return fmt.Errorf("git log: %w", err)
	}
	b.date = time.Unix(seconds, 0).UTC()
	return nil
}

func (b *build) readLicences(ctx context.Context) error {
	var architectures []string
	for _, p := range b.binaries {
		architectures = append(architectures, p.arch)
	}
	var err error
	if b.modules, err = licences.Find(ctx, b.root, "./cmd/bridge", architectures...); err != nil {
		return err
	}
	if err := licences.Check(b.modules); err != nil {
		return err
	}
	b.licence, err = os.ReadFile(filepath.Join(b.root, "LICENSE"))
	return err
}

// file is the path of something of the release: bridge_v1.2.3_<rest>.
func (b *build) file(rest string) string {
	return filepath.Join(b.dist, "bridge_"+b.version+"_"+rest)
}
