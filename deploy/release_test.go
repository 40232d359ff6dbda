package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	gcr "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"

	"github.com/kubebridge/bridge/deploy/image"
)

const releaseVersion = "v1.2.3"

// distOf returns a dist/ and the version of the release in it: what `make snapshot` has made, where
// $DIST names it, else one with as much of it as the image and the chart are made of.
func distOf(t *testing.T) (dir, version string) {
	t.Helper()
	if dir = os.Getenv("DIST"); dir == "" {
		return smallDist(t), releaseVersion
	}
	var facts struct{ Version string }
	text, err := os.ReadFile(filepath.Join(dir, "metadata.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &facts))
	return dir, "v" + facts.Version
}

// smallDist builds the binary for this machine as .goreleaser.yaml says, with the files in which
// GoReleaser describes what it made, and has the image and the chart made of it.
func smallDist(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	commit := command(t, "git", "rev-parse", "HEAD")
	var recipe struct {
		Builds []struct{ Flags, Tags, Ldflags []string }
	}
	text, err := os.ReadFile("../.goreleaser.yaml")
	must(t, err)
	must(t, yaml.Unmarshal(text, &recipe))
	build := recipe.Builds[0]
	ldflags := strings.NewReplacer("v{{ .Version }}", releaseVersion, "{{ .FullCommit }}", commit,
		"{{ .CommitDate }}", "2026-01-02T03:04:05Z").Replace(strings.Join(build.Ldflags, " "))
	args := slices.Concat([]string{
		"build", "-C", "..", "-tags", strings.Join(build.Tags, ","), "-ldflags", ldflags,
		"-o", filepath.Join(dir, "bridge_linux", "bridge"),
	}, build.Flags, []string{"./cmd/bridge"})
	t.Setenv("CGO_ENABLED", "0")
	command(t, "go", args...)
	for name, content := range map[string]any{
		"metadata.json": map[string]string{"version": strings.TrimPrefix(releaseVersion, "v"), "commit": commit},
		"artifacts.json": []map[string]string{
			{"type": "Binary", "goos": "linux", "goarch": runtime.GOARCH, "path": "dist/bridge_linux/bridge"},
			{"type": "Binary", "goos": "darwin", "goarch": "arm64", "path": "dist/bridge_darwin/bridge"},
		},
	} {
		text, err := json.Marshal(content)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	makeRelease(t, dir)
	return dir
}

func makeRelease(t *testing.T, dir string, more ...string) {
	t.Helper()
	t.Log(command(t, "go", append([]string{"run", "./release", "-dist", dir}, more...)...))
}

// command returns what a command prints.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(string(said))
}

func TestARelease(t *testing.T) {
	dir, version := distOf(t)
	name := "bridge_" + version + "_linux_" + runtime.GOARCH
	complete := os.Getenv("DIST") != ""
	t.Run("has everything for every platform", func(t *testing.T) {
		if !complete {
			t.Skip("make snapshot")
		}
		sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		must(t, err)
		for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
			for _, kind := range []string{".tar.gz", ".cdx.json"} {
				if file := "bridge_" + version + "_" + platform + kind; !strings.Contains(string(sums), "  "+file+"\n") {
					t.Errorf("SHA256SUMS has no %s:\n%s", file, sums)
				}
			}
		}
		for _, pattern := range []string{"kubebridge_*_amd64.deb", "kubebridge_*_arm64.rpm", "homebrew/Casks/kubebridge.rb", "krew/bridge.yaml"} {
			if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) != 1 {
				t.Errorf("%s: %v, %v", pattern, found, err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
		cmd.Dir = dir
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, said)
		}
	})
	t.Run("has a static binary that knows its version", func(t *testing.T) {
		found, err := filepath.Glob(filepath.Join(dir, "bridge_linux*", "bridge"))
		must(t, err)
		for _, binary := range found {
			must(t, image.CheckStatic(binary))
		}
		binary := found[slices.IndexFunc(found, func(path string) bool { return len(found) == 1 || strings.Contains(path, runtime.GOARCH) })]
		text, err := os.ReadFile(binary)
		must(t, err)
		if bytes.Contains(text, []byte("text/template.(*state).evalField")) {
			t.Error("something uses text/template: the linker keeps every exported method, and the binary is larger by a quarter")
		}
		if said := command(t, binary, "version"); !strings.HasPrefix(said, "bridge "+version+" (commit ") {
			t.Errorf("it says %s", said)
		}
	})
	t.Run("has archives with the licences", func(t *testing.T) {
		if !complete {
			t.Skip("make snapshot")
		}
		files := unpackArchive(t, filepath.Join(dir, name+".tar.gz"))
		for _, want := range []string{"bridge", "LICENSE", "THIRD_PARTY_NOTICES.txt", "README.md", "bridge.example.yaml"} {
			if len(files[want]) == 0 {
				t.Errorf("it has no %s", want)
			}
		}
	})
	t.Run("has an SBOM", func(t *testing.T) {
		var bom struct {
			BOMFormat  string `json:"bomFormat"`
			Components []struct {
				Name     string `json:"name"`
				Hashes   []any  `json:"hashes"`
				Licenses []any  `json:"licenses"`
			} `json:"components"`
		}
		file := filepath.Join(dir, name+".cdx.json")
		if !complete {
			file = filepath.Join(t.TempDir(), "bom.json")
			command(t, "go", "run", "./sbom", "-version", version, "-out", file, filepath.Join(dir, "bridge_linux", "bridge"))
		}
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, json.Unmarshal(text, &bom))
		if bom.BOMFormat != "CycloneDX" || len(bom.Components) < 50 {
			t.Errorf("%s with %d components", bom.BOMFormat, len(bom.Components))
		}
		for _, c := range bom.Components {
			if len(c.Licenses) == 0 || len(c.Hashes) == 0 && c.Name != "std" {
				t.Errorf("%s has no licence or no hash", c.Name)
			}
		}
	})
	t.Run("has a chart of its version", func(t *testing.T) {
		chart, err := loader.LoadFile(filepath.Join(dir, "bridge-"+strings.TrimPrefix(version, "v")+".tgz"))
		must(t, err)
		if "v"+chart.Metadata.Version != version || chart.Metadata.AppVersion != version || len(chart.Schema) == 0 || len(chart.Templates) < 8 {
			t.Errorf("%+v with %d templates", chart.Metadata, len(chart.Templates))
		}
	})
	t.Run("has an image that a registry takes", func(t *testing.T) {
		img := readImage(t, filepath.Join(dir, "bridge_"+version+"_image.oci.tar"))
		must(t, validate.Image(img))
		file, err := img.ConfigFile()
		must(t, err)
		if file.Architecture != runtime.GOARCH || file.Config.Labels["org.opencontainers.image.version"] != version {
			t.Errorf("%+v", file)
		}
		root := t.TempDir()
		must(t, image.Unpack(img, root))
		for _, place := range []string{image.Roots, image.Notices, image.Licence} {
			if text, err := os.ReadFile(filepath.Join(root, place)); err != nil || len(text) < 10_000 {
				t.Errorf("%s: %d bytes, %v", place, len(text), err)
			}
		}
	})
	t.Run("has the same image and chart when they are made again, and pushes the image", func(t *testing.T) {
		digest := func() string {
			text, err := os.ReadFile(filepath.Join(dir, "bridge_"+version+"_image.digest"))
			must(t, err)
			return strings.TrimSpace(string(text))
		}
		sums := func() (list []string) {
			for _, file := range []string{"bridge_" + version + "_image.oci.tar", "bridge-" + strings.TrimPrefix(version, "v") + ".tgz"} {
				text, err := os.ReadFile(filepath.Join(dir, file))
				must(t, err)
				list = append(list, fmt.Sprintf("%s %x", file, sha256.Sum256(text)))
			}
			return list
		}
		server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
		defer server.Close()
		repository := strings.TrimPrefix(server.URL, "http://") + "/bridge"
		first, before := digest(), sums()
		makeRelease(t, dir, "-push", "-repository", repository)
		makeRelease(t, dir)
		if after := sums(); !slices.Equal(before, after) {
			t.Errorf("first\n%v\nthen\n%v", before, after)
		}
		reference, err := gcr.NewDigest(repository + "@" + first)
		must(t, err)
		if _, err := remote.Index(reference); err != nil {
			t.Errorf("the registry does not have what was pushed: %v", err)
		}
	})
}

func unpackArchive(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	must(t, err)
	return untar(t, unzipped)
}

func untar(t *testing.T, in io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	reader := tar.NewReader(in)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		files[header.Name], err = io.ReadAll(reader)
		must(t, err)
	}
}

// readImage reads the image for this machine out of an OCI archive.
func readImage(t *testing.T, file string) v1.Image {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	dir := t.TempDir()
	for name, data := range untar(t, f) {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, data, 0o644))
	}
	outer, err := layout.ImageIndexFromPath(dir)
	must(t, err)
	manifest, err := outer.IndexManifest()
	must(t, err)
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	manifest, err = index.IndexManifest()
	must(t, err)
	i := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool { return d.Platform.Architecture == runtime.GOARCH })
	if i < 0 {
		t.Fatalf("there is no image for %s", runtime.GOARCH)
	}
	img, err := index.Image(manifest.Manifests[i].Digest)
	must(t, err)
	return img
}

// The Containerfile makes the image that is released.
// The recipe for a container engine must not become another image than the one that is released.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile("image/Containerfile")
	must(t, err)
	img, err := image.Build(&image.Config{Arch: "amd64"})
	must(t, err)
	file, err := img.ConfigFile()
	must(t, err)
	quoted := func(list []string) string {
		text, err := json.Marshal(list)
		must(t, err)
		return string(text)
	}
	_, last, _ := strings.Cut(string(text), "\nFROM scratch\n")
	var got []string
	for line := range strings.Lines(last) {
		if word, _, _ := strings.Cut(line, " "); slices.Contains([]string{"USER", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"}, word) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		"USER " + file.Config.User, "WORKDIR " + file.Config.WorkingDir, "ENV " + strings.Join(file.Config.Env, " "),
		"ENTRYPOINT " + quoted(file.Config.Entrypoint), "CMD " + quoted(file.Config.Cmd),
	}
	if !equal(got, want) {
		t.Errorf("the Containerfile has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !strings.Contains(string(text), " -tags grpcnotrace ") {
		t.Error("it builds the bridge with other tags than make and a release do")
	}
	for _, place := range []string{image.Binary, image.Roots, "usr/share/doc/bridge/", "var/lib/bridge"} {
		if !strings.Contains(last, "/"+place) {
			t.Errorf("nothing is copied to /%s", place)
		}
	}
}
