package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kubebridge/bridge/deploy/licences"
)

// build is what is being released.
type build struct {
	root, out string // directories
	version   string // v1.2.3
	commit    string
	date      time.Time // of the commit
	platforms []platform
	modules   []licences.Module
	licence   []byte
}

// platform is linux/amd64.
type platform struct{ os, arch string }

func main() {
	var b build
	var platforms string
	var anyTree bool
	flag.StringVar(&b.root, "root", "..", "directory of the repository")
	flag.StringVar(&b.out, "out", "../dist", "directory for what is made; it is emptied first")
	flag.StringVar(&b.version, "version", "", "version of the release: v1.2.3")
	flag.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "what to build for; the image has those of linux")
	flag.BoolVar(&anyTree, "any-tree", false, "release a tree with changes that are not committed, for a try")
	flag.Parse()
	if err := b.run(context.Background(), platforms, anyTree); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var semver = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func (b *build) run(ctx context.Context, platforms string, anyTree bool) error {
	if !semver.MatchString(b.version) {
		return fmt.Errorf("-version %q: want one such as v1.2.3", b.version)
	}
	for text := range strings.SplitSeq(platforms, ",") {
		system, arch, ok := strings.Cut(text, "/")
		if !ok {
			return fmt.Errorf("-platforms: %q: want one such as linux/amd64", text)
		}
		b.platforms = append(b.platforms, platform{system, arch})
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"commit", func(ctx context.Context) error { return b.readCommit(ctx, anyTree) }},
		{"licences", b.readLicences},
		{"binaries", b.binaries},
		{"image", b.image},
		{"chart", b.chart},
		{"checksums", b.checksums},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Printf("%-10s %s\n", step.what, time.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// readCommit finds out what is released, and empties the directory for it.
func (b *build) readCommit(ctx context.Context, anyTree bool) error {
	facts, err := b.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	var seconds int64
	if _, err := fmt.Sscanf(facts, "%s %d", &b.commit, &seconds); err != nil {
		return fmt.Errorf("git log: %w", err)
	}
	b.date = time.Unix(seconds, 0).UTC()
	changes, err := b.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" && !anyTree {
		return fmt.Errorf("the tree has changes that are not committed, so nobody could make the same again (-any-tree for a try):\n%s", changes)
	}
	return errors.Join(os.RemoveAll(b.out), os.MkdirAll(b.out, 0o755))
}

func (b *build) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = b.root, os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

func (b *build) readLicences(ctx context.Context) error {
	var architectures []string
	for _, p := range b.platforms {
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
func (b *build) file(rest string) string { return filepath.Join(b.out, "bridge_"+b.version+"_"+rest) }
