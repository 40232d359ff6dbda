package disk

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// HoldsDatabase reports whether a directory has files of Pebble.
func HoldsDatabase(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		name := e.Name()
		return name == "LOCK" || strings.HasPrefix(name, "MANIFEST-") ||
			strings.HasPrefix(name, "marker.")
	})
}

// LacksManifest reports whether a directory has data that no manifest names: Pebble would delete it
// and start with an empty database. A start that was killed before it had written anything has no
// manifest and no data.
func LacksManifest(dir string, entries []fs.DirEntry) (bool, error) {
	hasData := slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		info, err := e.Info()
		ext := filepath.Ext(e.Name())
		return err == nil && info.Size() > 0 && (ext == ".sst" || ext == ".log")
	})
	if !hasData {
		return false, nil
	}
	found, err := pebble.Peek(dir, vfs.Default)
	return err == nil && !found.Exists, err
}
