package main

import (
	"context"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kubebridge/bridge/deploy/image"
	"github.com/kubebridge/bridge/deploy/licences"
)

// image writes the image for the architectures of linux, and its digest, which is what a chart
// should name.
func (b *build) image(ctx context.Context) error {
	var images []v1.Image
	for _, p := range b.binaries {
		if err := image.CheckStatic(p.path); err != nil {
			return err
		}
		binary, err := os.ReadFile(p.path)
		if err != nil {
			return err
		}
		img, err := image.Build(&image.Config{
			Content: image.Content{
				Binary: binary, Licence: b.licence,
				Notices: []byte(licences.Notices(b.modules)),
			},
			Arch: p.arch, Version: b.version, Revision: b.commit, Created: b.date,
		})
		if err != nil {
			return err
		}
		images = append(images, img)
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
	reference := b.repository + ":" + b.version
	if err := image.WriteArchive(b.file("image.oci.tar"), index, reference, b.date); err != nil ||
		!b.push {
		return err
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	return remote.WriteIndex(tag, index, remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithContext(ctx))
}
