package store

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FormatVersion of the keys and values in the database. A directory of another version is refused.
const FormatVersion = "1"

// Errors that a caller decides by.
var (
	// ErrInUse: another process has the state directory open.
	ErrInUse = errors.New("state directory is in use by another process")
	// ErrForeign: the directory holds something else, or state of another format.
	ErrForeign = errors.New("not a state directory of this version of the bridge")
	// ErrOtherCluster: the state was made with another cluster.
	ErrOtherCluster = errors.New("state directory belongs to another cluster")
)

// Options of the state database. Zero values mean the documented default.
type Options struct {
	// Dir is the directory; it is made when missing. Empty: everything stays in memory and is gone at the end.
	Dir string
	// CacheBytes is the size of the block cache; default 32 MiB.
	CacheBytes int64
	// MemTableBytes is how much is collected in memory before it is sorted to disk; default 16 MiB.
	MemTableBytes uint64
	// FS replaces the file system, for tests of its faults.
	FS vfs.FS
	// Log; default: discarded.
	Log *slog.Logger
}

// DB is the state database of one bridge: settled state, watermarks and identity of all informers.
type DB struct {
	pebble *pebble.DB
	dir    string
	sync   *pebble.WriteOptions
	bodies codec
	close  func() error
	// wasClean: the run before ended in order, or there was none. Set by Open.
	wasClean bool
}

// Open opens the state directory, or makes it. It never repairs or rebuilds: what it does not understand it refuses, with
// an error that says what to do.
func Open(o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Dir != "" && o.FS == nil {
		if err := checkDir(o.Dir); err != nil {
			return nil, err
		}
	}
	db := &DB{dir: o.Dir, sync: pebble.Sync}
	if o.Dir == "" {
		db.sync = pebble.NoSync
	}
	p, err := pebble.Open(cmp.Or(o.Dir, "memory"), pebbleOptions(o))
	if err != nil {
		return nil, openError(o.Dir, err)
	}
	db.pebble = p
	db.close = sync.OnceValue(p.Close)
	if err := errors.Join(db.checkFormat(), db.readClean()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return db, nil
}

// pebbleOptions are for many small versions and fewer, already compressed bodies: bloom filters, since most look-ups of a
// new object miss; no block compression.
func pebbleOptions(o Options) *pebble.Options {
	opts := &pebble.Options{
		Cache:              nil,
		CacheSize:          cmp.Or(o.CacheBytes, 32<<20),
		MemTableSize:       cmp.Or(o.MemTableBytes, 16<<20),
		FormatMajorVersion: pebble.FormatNewest,
		Logger:             pebbleLogger{o.Log},
		FS:                 o.FS,
		DisableWAL:         o.Dir == "",
	}
	if o.FS == nil && o.Dir == "" {
		opts.FS = vfs.NewMem()
	}
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.UniformDBCompressionSettings(block.NoCompression)
	})
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return opts
}

// checkDir refuses a directory that holds something else than state, before Pebble puts its files among it.
func checkDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory %s: %w; choose another with state.dir", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("state directory %s: %w", dir, err)
	}
	if len(entries) > 0 && !holdsDatabase(entries) {
		return fmt.Errorf("state directory %s: %w: it holds other files; choose an empty directory with state.dir", dir, ErrForeign)
	}
	return checkManifest(dir, entries)
}

// checkManifest refuses a directory with data that no manifest speaks of: Pebble would delete it and begin anew. A start that was
// killed before it had written anything has no manifest either, and no data.
func checkManifest(dir string, entries []fs.DirEntry) error {
	data := slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		info, err := e.Info()
		ext := filepath.Ext(e.Name())
		return err == nil && info.Size() > 0 && (ext == ".sst" || ext == ".log")
	})
	if !data {
		return nil
	}
	found, err := pebble.Peek(dir, vfs.Default)
	if err != nil {
		return openError(dir, err)
	}
	if !found.Exists {
		return openError(dir, fmt.Errorf("%w: there is data, and no manifest that says which", ErrDamaged))
	}
	return nil
}

// holdsDatabase says whether there are files of Pebble's in a directory.
func holdsDatabase(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		name := e.Name()
		return name == "LOCK" || strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "marker.")
	})
}

func openError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EWOULDBLOCK), strings.Contains(err.Error(), "lock held"):
		return fmt.Errorf("state directory %s: %w; stop it, or give this one another directory with state.dir", dir, ErrInUse)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("state directory %s is not writable: %w; make it so, or choose another with state.dir", dir, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("state directory %s: %w; free space or choose another with state.dir", dir, err)
	default:
		return fmt.Errorf("state directory %s can't be opened: %w; nothing was changed: restore it from a copy, or move it away to start with a new snapshot", dir, err)
	}
}

func (db *DB) checkFormat() error {
	version, err := db.get(metaKey("format"))
	if err != nil {
		return err
	}
	if version == nil {
		db.wasClean = true
		return db.set(metaKey("format"), []byte(FormatVersion))
	}
	if string(version) != FormatVersion {
		return fmt.Errorf("state directory %s: %w: it has format %q, this bridge reads %q; use the bridge that wrote it, or another directory",
			db.dir, ErrForeign, version, FormatVersion)
	}
	return nil
}

// BindCluster remembers whose objects these are (the uid of the namespace kube-system), and refuses those of another
// cluster with ErrOtherCluster. An empty id is not checked.
func (db *DB) BindCluster(id string) error {
	if id == "" {
		return nil
	}
	known, err := db.get(metaKey("cluster"))
	switch {
	case err != nil:
		return err
	case known == nil:
		return db.set(metaKey("cluster"), []byte(id))
	case string(known) != id:
		return fmt.Errorf("state directory %s: %w: it was made with cluster %s, this one is %s; give each cluster its own state.dir", db.dir, ErrOtherCluster, known, id)
	default:
		return nil
	}
}

// Secret is a random key of this state directory, made at the first call: redacted values are hashed with it, so that a
// change of value stays visible across restarts and the value does not.
func (db *DB) Secret() ([]byte, error) {
	key, err := db.get(metaKey("secret"))
	if err != nil || key != nil {
		return key, err
	}
	key = make([]byte, 32)
	rand.Read(key)
	return key, db.set(metaKey("secret"), key)
}

// get reads a value, nil when there is none. The result is the caller's.
func (db *DB) get(key []byte) ([]byte, error) {
	value, closer, err := db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state database: %w", err)
	}
	out := append([]byte{}, value...)
	return out, closer.Close()
}

func (db *DB) set(key, value []byte) error {
	if err := db.pebble.Set(key, value, db.sync); err != nil {
		return fmt.Errorf("state database: %w", err)
	}
	return nil
}

// DiskBytes is what the database takes on disk (or in memory, without a directory).
func (db *DB) DiskBytes() uint64 { return db.pebble.Metrics().DiskSpaceUsage() }

// Dir is the absolute path of the state directory, "" in memory.
func (db *DB) Dir() string {
	if db.dir == "" {
		return ""
	}
	if abs, err := filepath.Abs(db.dir); err == nil {
		return abs
	}
	return db.dir
}

// Close ends the database. Nothing else may be running on it. A second call does nothing.
func (db *DB) Close() error {
	if err := db.close(); err != nil {
		return fmt.Errorf("close state database: %w", err)
	}
	return nil
}

// pebbleLogger passes Pebble's messages on. Its Infof are many and of use to nobody but a debugger.
type pebbleLogger struct{ log *slog.Logger }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "message", fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("pebble", "message", fmt.Sprintf(format, args...))
}

// Fatalf is called when Pebble can't go on, for example when the disk is full while it writes its manifest. There is
// nothing to save: what is settled is on disk.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.log.Error("pebble", "message", fmt.Sprintf(format, args...))
	os.Exit(1)
}
