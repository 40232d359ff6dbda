package statedb

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// extentFile has how far Pebble's MANIFEST, its list of files, is on disk. Pebble takes a MANIFEST
// that can't be read to its end for one that a crash has cut, continues with an older list, and
// deletes the files that only the rest names. So the length is written after each sync of it, and
// compared before Pebble opens anything. The file is not synced itself: an older length is a weaker
// check, and not a wrong one.
const extentFile = "manifest.extent"

// manifestLength writes the file.
type manifestLength struct {
	files vfs.FS
	dir   string

	mu   sync.Mutex
	file vfs.File // guarded by mu; nil until something is noted
}

// synced is called with how far a journal of Pebble's is on disk.
func (e *manifestLength) synced(name string, length int64) {
	base := path.Base(name)
	if !strings.HasPrefix(base, "MANIFEST-") {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file == nil {
		file, err := e.files.OpenReadWrite(e.files.PathJoin(e.dir, extentFile),
			vfs.WriteCategoryUnspecified)
		if err != nil {
			return // one check less at the next start
		}
		e.file = file
	}
	_, _ = e.file.WriteAt(encodeExtent(base, length), 0)
}

func (e *manifestLength) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file != nil {
		_ = e.file.Close()
		e.file = nil
	}
}

// encodeExtent has one length for all names and lengths, so that one replaces the other.
func encodeExtent(name string, length int64) []byte {
	text := fmt.Sprintf("%-32s %016d", name, length)
	return fmt.Appendf(nil, "%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// decodeExtent returns "" for what it does not understand: a crash may have cut it.
func decodeExtent(b []byte) (name string, length int64) {
	if _, err := fmt.Sscanf(string(b), "%s %d", &name, &length); err != nil ||
		string(encodeExtent(name, length)) != string(b) {
		return "", 0
	}
	return name, length
}

// checkManifest refuses a database whose list of files has lost what was on disk.
func (d *diskState) checkManifest() error {
	note, err := readAll(d.inner, d.inner.PathJoin(d.dir, extentFile))
	if err != nil {
		//nolint:nilerr // a new directory has none; if it can not be read, Pebble reports that
		return nil
	}
	name, length := decodeExtent(note)
	found, err := pebble.Peek(d.dir, d.inner)
	if err != nil || !found.Exists || path.Base(found.ManifestFilename) != name {
		return err // a new one was begun, and the crash came before its length was written
	}
	readable, err := readableLength(d.inner, d.inner.PathJoin(d.dir, name))
	if err != nil {
		return err
	}
	if readable < length {
		return damagedError(d.dir, fmt.Sprintf("of the %d bytes of %s only the first %d are what "+
			"was written", length, name, readable))
	}
	return nil
}

func readAll(files vfs.FS, name string) ([]byte, error) {
	file, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	all, err := io.ReadAll(file)
	return all, errors.Join(err, file.Close())
}

// readableLength returns where the last record of a MANIFEST ends before the first that can't be
// read.
func readableLength(files vfs.FS, name string) (int64, error) {
	file, err := files.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	records := record.NewReader(file, 0)
	length := int64(0)
	for {
		r, err := records.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return length, nil //nolint:nilerr // how far it could be read is the answer
		}
		length = records.Offset()
	}
}
