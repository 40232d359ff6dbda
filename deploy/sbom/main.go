// Sbom writes what is in a binary, by the list that the go tool has put into it, as CycloneDX with
// the licence of each module.
package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/kubebridge/bridge/deploy/licences"
)

// sbom is what is written.
type sbom struct {
	version, date string
	modules       []licences.Module
}

func main() {
	root := flag.String("root", "..", "directory of the repository")
	version := flag.String("version", "", "version of the release: v1.2.3")
	date := flag.String("date", "", "date of the commit, RFC 3339")
	out := flag.String("out", "", "file to write")
	flag.Parse()
	if err := run(*root, *version, *date, flag.Arg(0), *out); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(root, version, date, binary, out string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	setting := func(key string) string {
		i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
		if i < 0 {
			return ""
		}
		return info.Settings[i].Value
	}
	system, arch := setting("GOOS"), setting("GOARCH")
	modules, err := licences.Find(context.Background(), root, "./cmd/bridge", cmp.Or(arch, "amd64"))
	if err != nil {
		return err
	}
	s := &sbom{version: version, date: date, modules: modules}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	err = cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(s.of(info, system, arch))
	return errors.Join(err, f.Close())
}

// of lists the modules of a binary.
func (b *sbom) of(info *buildinfo.BuildInfo, system, arch string) *cdx.BOM {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: b.date,
		Component: &cdx.Component{
			BOMRef: "bridge", Type: cdx.ComponentTypeApplication, Name: "bridge", Version: b.version,
			PackageURL: "pkg:golang/github.com/kubebridge/bridge@" + b.version + "?goos=" + system +
				"&goarch=" + arch,
			Licenses: licenceChoices([]string{"Apache-2.0"}),
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
	return bom
}

func references(components []cdx.Component) *[]string {
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	return &refs
}

// component is a module. sum is its h1 checksum.
func (b *sbom) component(path, version, sum string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	c := cdx.Component{
		BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version,
		PackageURL: url,
	}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil &&
		len(hash) > 0 {
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
