package image

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// WriteArchive writes an index as an OCI archive: `docker load`, `podman load` and `skopeo copy
// oci-archive:…` read it. name is what the image is called when it is loaded.
func WriteArchive(file string, index v1.ImageIndex, name string, created time.Time) error {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".oci-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	annotations := map[string]string{
		"org.opencontainers.image.ref.name": name,
		"io.containerd.image.name":          name,
	}
	if err := p.ReplaceIndex(index, match.Annotation("io.containerd.image.name", name),
		layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := archive(out, dir, created); err != nil {
		_ = out.Close() // the first error says more
		return fmt.Errorf("write %s: %w", file, err)
	}
	return out.Close()
}

// archive writes a directory as a tar that depends on nothing but names and contents.
func archive(w io.Writer, dir string, created time.Time) error {
	var names []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	out := tar.NewWriter(w)
	for _, path := range names {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(data)),
			ModTime: created, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR,
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(data); err != nil {
			return err
		}
	}
	return out.Close()
}

// Unpack writes the file system of an image to a directory, with its owners when we may.
func Unpack(img v1.Image, dir string) error {
	in := tar.NewReader(mutate.Extract(img))
	for {
		header, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpack(header, in, filepath.Join(dir, filepath.FromSlash(header.Name))); err != nil {
			return err
		}
	}
}

func unpack(header *tar.Header, in io.Reader, path string) error {
	mode := fs.FileMode(header.Mode)
	if header.Typeflag == tar.TypeDir {
		if err := os.MkdirAll(path, mode); err != nil {
			return err
		}
	} else {
		data, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			return err
		}
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(path, header.Uid, header.Gid)
}
