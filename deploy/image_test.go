package deploy_test

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/deploy/image"
)

// A scan of the image has the binary to look at, and nothing else: no shell, library or package.
func TestImageContent(t *testing.T) {
	img, err := image.Build(&image.Config{Arch: "amd64", Content: image.Content{Binary: []byte("-"), Licence: []byte("-"), Notices: []byte("-")}})
	must(t, err)
	var got []string
	root := t.TempDir()
	must(t, image.Unpack(img, root))
	must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			got = append(got, strings.TrimPrefix(path, root+"/")+" "+entry.Type().String())
		}
		return err
	}))
	want := []string{"etc/group", "etc/passwd", image.Roots, image.Binary, image.Licence, image.Notices}
	for i := range want {
		want[i] += " ----------"
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the image has %q, want %q", got, want)
	}
}
