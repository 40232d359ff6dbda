package main

import (
	"context"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kubebridge/bridge/deploy/image"
	"github.com/kubebridge/bridge/deploy/licences"
)

// repository is where the image is to be pushed, and what it is called when it is loaded.
const repository = "ghcr.io/kubebridge/bridge"

// image writes the image for all platforms of linux, and its digest, which is what a chart should name.
func (b *build) image(context.Context) error {
	var images []v1.Image
	for _, p := range b.platforms {
		if p.os != "linux" {
			continue
		}
		binary, err := os.ReadFile(b.binary(p))
		if err != nil {
			return err
		}
		img, err := image.Build(&image.Config{
			Content: image.Content{Binary: binary, Licence: b.licence, Notices: []byte(licences.Notices(b.modules))},
			Arch:    p.arch, Version: b.version, Revision: b.commit, Created: b.date,
		})
		if err != nil {
			return err
		}
		images = append(images, img)
	}
	if len(images) == 0 {
		return nil
	}
	index, err := image.Index(images...)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.file("image.digest"), fmt.Appendln(nil, digest), 0o644); err != nil {
		return err
	}
	return image.WriteArchive(b.file("image.oci.tar"), index, repository+":"+b.version, b.date)
}
