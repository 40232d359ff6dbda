package image

import (
	"bytes"
	"io"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Config of an image. It becomes part of the image's digest.
type Config struct {
	Content
	Arch     string    // as Go names it
	Version  string    // as in v1.2.3
	Revision string    // commit
	Created  time.Time // of the commit, so that a build gives the same image at any time
}

// Build makes the image for linux and one architecture.
func Build(c *Config) (v1.Image, error) {
	var layer bytes.Buffer
	if err := c.writeTar(&layer, c.Created); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer: l,
		History: v1.History{Author: "bridge", CreatedBy: "make " +
			"release", Created: v1.Time{Time: c.Created}},
	})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Created = c.Arch, "linux", v1.Time{Time: c.Created}
	file.Config = v1.Config{
		User:       strconv.Itoa(User) + ":" + strconv.Itoa(User),
		Entrypoint: []string{"/" + Binary},
		Cmd:        []string{"run"},
		WorkingDir: "/var/lib/bridge",
		// The state volume is no home: who can write there could put a kubeconfig in place, whose
		// exec plugins would run.
		Env:    []string{"PATH=/usr/bin", "HOME=/nonexistent"},
		Labels: c.labels(),
	}
	return mutate.ConfigFile(img, file)
}

func (c *Config) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":    "bridge",
		prefix + "source":   "https://github.com/kubebridge/bridge",
		prefix + "licenses": "Apache-2.0",
		prefix + "version":  c.Version,
		prefix + "revision": c.Revision,
	}
}

// Index is one image for several architectures; a container engine picks its own.
func Index(images ...v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, img := range images {
		file, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: file.OS, Architecture: file.Architecture}},
		})
	}
	return index, nil
}
