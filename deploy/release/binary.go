package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kubebridge/bridge/deploy/image"
	"github.com/kubebridge/bridge/deploy/licences"
)

// binaries compiles the bridge for each platform, and packs each with its licences and its SBOM.
func (b *build) binaries(ctx context.Context) error {
	for _, p := range b.platforms {
		if err := b.compile(ctx, p); err != nil {
			return err
		}
		if err := b.pack(p); err != nil {
			return err
		}
		if err := b.writeSBOM(p); err != nil {
			return err
		}
	}
	return nil
}

// binary is the path of the binary of a platform. It is not part of the release; its archive is.
func (b *build) binary(p platform) string {
	return filepath.Join(b.out, ".binaries", p.os+"-"+p.arch, "bridge")
}

// tags leave out gRPC's debug pages, which the bridge does not serve. They use html/template, and with it the linker has to keep every exported
// method of every type.
const tags = "grpcnotrace"

func (b *build) compile(ctx context.Context, p platform) error {
	const main = "-X main."
	ldflags := fmt.Sprintf("-s -w -buildid= %srelease=%s %srevision=%s %srevisionTime=%s", main, b.version, main, b.commit, main, b.date.Format(time.RFC3339))
	out, err := filepath.Abs(b.binary(p))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", ldflags, "-o", out, "./cmd/bridge")
	cmd.Dir, cmd.Stderr = b.root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s/%s: %w", p.os, p.arch, err)
	}
	if p.os != "linux" {
		return nil
	}
	return image.CheckStatic(out)
}

func (b *build) pack(p platform) error {
	binary, err := os.ReadFile(b.binary(p))
	if err != nil {
		return err
	}
	files := []packed{
		{"bridge", 0o755, binary},
		{"LICENSE", 0o644, b.licence},
		{"THIRD_PARTY_NOTICES.txt", 0o644, []byte(licences.Notices(b.modules))},
	}
	for name, source := range map[string]string{"README.md": "README.md", "bridge.example.yaml": "config/bridge.example.yaml"} {
		data, err := os.ReadFile(filepath.Join(b.root, source))
		if err != nil {
			return err
		}
		files = append(files, packed{name, 0o644, data})
	}
	return writeArchive(b.file(p.os+"_"+p.arch+".tar.gz"), files, b.date)
}
