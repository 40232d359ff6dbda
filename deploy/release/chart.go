package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// chart packs the chart under the version of the release, as `helm package` does but for the times
// in it.
func (b *build) chart(context.Context) error {
	dir := filepath.Join(b.root, "deploy", "helm", "bridge")
	var files []packed
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || strings.HasPrefix(name, "ci"+string(filepath.Separator)) {
			return err
		}
		data, err := os.ReadFile(path)
		files = append(files, packed{"bridge/" + filepath.ToSlash(name), 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(b.version, "v")
	for i := range files {
		if files[i].name != "bridge/Chart.yaml" {
			continue
		}
		const unset = "version: 0.0.0\nappVersion: 0.0.0\n"
		text := string(files[i].data)
		if !strings.Contains(text, unset) {
			return fmt.Errorf("Chart.yaml has not %q", unset)
		}
		files[i].data = []byte(strings.Replace(text, unset,
			fmt.Sprintf("version: %s\nappVersion: %s\n", version, b.version), 1))
	}
	return writeArchive(filepath.Join(b.dist, "bridge-"+version+".tgz"), files, b.date)
}
