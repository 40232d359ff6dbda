package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/kubebridge/bridge/deploy/licences"
)

// writeSBOM writes what is in a binary, by the list that the go tool has put into it, as CycloneDX.
func (b *build) writeSBOM(p platform) error {
	info, err := buildinfo.ReadFile(b.binary(p))
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: b.date.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: "bridge", Type: cdx.ComponentTypeApplication, Name: "bridge", Version: b.version,
			PackageURL: "pkg:golang/github.com/kubebridge/bridge@" + b.version + "?goos=" + p.os + "&goarch=" + p.arch,
			Licenses:   licenceChoices([]string{"Apache-2.0"}),
		},
	}
	components := []cdx.Component{b.component("std", info.GoVersion, "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, b.component(m.Path, m.Version, m.Sum))
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: "bridge", Dependencies: references(components)}}
	f, err := os.Create(b.file(p.os + "_" + p.arch + ".cdx.json"))
	if err != nil {
		return err
	}
	if err := cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		_ = f.Close() // the first error tells more
		return err
	}
	return f.Close()
}

func references(components []cdx.Component) *[]string {
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	return &refs
}

// component is a module. sum is its h1 checksum.
func (b *build) component(path, version, sum string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	c := cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) > 0 {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	i := slices.IndexFunc(b.modules, func(m licences.Module) bool { return m.Path == path })
	if i >= 0 {
		c.Licenses = licenceChoices(b.modules[i].IDs())
	}
	return c
}

func licenceChoices(ids []string) *cdx.Licenses {
	list := cdx.Licenses{}
	for _, id := range ids {
		licence := &cdx.License{ID: id}
		if id == "GooglePatentsFile" { // which SPDX does not know
			licence = &cdx.License{Name: id}
		}
		list = append(list, cdx.LicenseChoice{License: licence})
	}
	return &list
}
