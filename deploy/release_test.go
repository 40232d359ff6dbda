package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/kubebridge/bridge/deploy/image"
)

const releaseVersion = "v1.2.3"

// makeRelease makes a release of this tree for this machine's architecture.
func makeRelease(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dist")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./release", "-version", releaseVersion, "-out", dir, "-platforms", "linux/"+runtime.GOARCH, "-any-tree")
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	t.Logf("%s", said)
	return dir
}

func TestARelease(t *testing.T) {
	dir := makeRelease(t)
	name := "bridge_" + releaseVersion + "_linux_" + runtime.GOARCH
	t.Run("has checksums of everything", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = dir
		said, err := cmd.CombinedOutput()
		must(t, err)
		entries, err := os.ReadDir(dir)
		must(t, err)
		if strings.Count(string(said), ": OK") != len(entries)-1 || len(entries) != 6 {
			t.Errorf("%d files:\n%s", len(entries), said)
		}
	})
	t.Run("has the binary with its licences", func(t *testing.T) {
		files := unpackArchive(t, filepath.Join(dir, name+".tar.gz"))
		for _, want := range []string{"bridge", "LICENSE", "THIRD_PARTY_NOTICES.txt", "README.md", "bridge.example.yaml"} {
			if len(files[want]) == 0 {
				t.Errorf("it has no %s", want)
			}
		}
		binary := filepath.Join(t.TempDir(), "bridge")
		must(t, os.WriteFile(binary, files["bridge"], 0o755))
		must(t, image.CheckStatic(binary))
		if bytes.Contains(files["bridge"], []byte("text/template.(*state).evalField")) {
			t.Error("something uses text/template: the linker keeps every exported method, and the binary is larger by a quarter")
		}
		said, err := exec.CommandContext(t.Context(), binary, "version").Output()
		must(t, err)
		if !strings.HasPrefix(string(said), "bridge "+releaseVersion+" (commit ") {
			t.Errorf("it says %s", said)
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
		text, err := os.ReadFile(filepath.Join(dir, name+".cdx.json"))
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
		chart, err := loader.LoadFile(filepath.Join(dir, "bridge-1.2.3.tgz"))
		must(t, err)
		if chart.Metadata.Version != "1.2.3" || chart.Metadata.AppVersion != releaseVersion || len(chart.Schema) == 0 || len(chart.Templates) < 8 {
			t.Errorf("%+v with %d templates", chart.Metadata, len(chart.Templates))
		}
	})
	t.Run("has an image that a registry takes", func(t *testing.T) {
		img := readImage(t, filepath.Join(dir, "bridge_"+releaseVersion+"_image.oci.tar"))
		must(t, validate.Image(img))
		file, err := img.ConfigFile()
		must(t, err)
		if file.Architecture != runtime.GOARCH || file.Config.Labels["org.opencontainers.image.version"] != releaseVersion {
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
	t.Run("is the same when it is made again", func(t *testing.T) {
		sums := func(dir string) string {
			text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
			must(t, err)
			return string(text)
		}
		if first, second := sums(dir), sums(makeRelease(t)); first != second {
			t.Errorf("first\n%s\nthen\n%s", first, second)
		}
	})
}

func TestAReleaseOfChangesOrOfNoVersionIsRefused(t *testing.T) {
	for _, args := range [][]string{{"-version", "1.2"}, {"-version", ""}} {
		said, err := exec.CommandContext(t.Context(), "go", append([]string{"run", "./release", "-out", t.TempDir()}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(said), "want one such as v1.2.3") {
			t.Errorf("%v: %v, %s", args, err, said)
		}
	}
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

// readImage reads the only image of an OCI archive.
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
	img, err := index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	return img
}

// The recipe for a container engine must not become another image than the one that is released.
func TestTheContainerfileMakesTheSameImage(t *testing.T) {
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
