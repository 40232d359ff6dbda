// Package statedb opens, writes and watches the database of a state directory (Pebble). Only
// internal/store knows what lies in it. statedb never loses a commit in silence: it waits for a
// full or read-only disk. Where waiting does not help, or a file is damaged, it ends the process
// with a reason.
//
// In come batches of keys and values. Out goes whether they are on disk, how much room is left, and
// the database for reads. Its own keys are format, cluster, secret, and a mark that the last run
// ended in order.
//
// Blocking: Commit returns ErrUnavailable while the disk refuses writes, Finish waits until it
// accepts them. Open starts Pebble's goroutines, Close ends them.
package statedb

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/store/disk"
)

// Errors that a caller decides by. Each continues "state directory <name> …".
var (
	// ErrInUse: another process has the state directory open.
	ErrInUse = errors.New("is in use by another process")
	// ErrForeign: the directory holds something else, or state of another format.
	ErrForeign = errors.New("is not one of this version of the bridge")
	// ErrOtherCluster: the state was made with another cluster.
	ErrOtherCluster = errors.New("belongs to another cluster")
	// ErrNoState: no bridge has left state in the directory.
	ErrNoState = errors.New("there is no state")
	// ErrDamaged: a file of the database is not what was written.
	ErrDamaged = errors.New("its files are damaged")
)

// Options of the state database. Zero values mean the documented default.
type Options struct {
	// Dir is the directory; it is created when missing. Empty: everything stays in memory and is
	// gone at the end.
	Dir string
	// CacheBytes is the size of the block cache; default 8 MiB: the operating system keeps the
	// files too, and records are in memory.
	CacheBytes int64
	// MemTableBytes is how much is collected in memory before it is sorted to disk; default 4 MiB,
	// of which there may be two.
	MemTableBytes uint64
	// Spans returns where a sorted table ends, by its first key; nil for no limits.
	Spans func(start []byte) (policy pebble.SpanPolicy, end []byte, err error)
	// FS replaces the file system, for tests of its faults.
	FS vfs.FS
	// Fatal gets, once, why the database can't continue: a file is damaged, or the disk fails. It
	// has to end the process: later writes wait forever. Nothing is lost by that, uncommitted
	// changes are read again. Default: log it and exit with 1.
	Fatal func(error)
	// Log; default: discarded.
	Log *slog.Logger
	// Registerer for metrics; nil for none.
	Registerer prometheus.Registerer
}

// DB is the state database of one bridge. It may be used concurrently.
type DB struct {
	pebble *pebble.DB
	dir    string
	sync   *pebble.WriteOptions
	close  func() error
	runs   Runs
	disk   *diskState // nil in memory
	writes writes
	opener *disk.Opener
	used   atomic.Uint64 // bytes, when they were last counted
}

// Open opens the state directory, or creates it. It never repairs or rebuilds: what it does not
// understand it refuses, with an error that says what to do.
func Open(o Options) (*DB, error) {
	if o.Dir != "" && o.FS == nil {
		if err := checkDir(o.Dir, cmp.Or(o.Log, slog.New(slog.DiscardHandler))); err != nil {
			return nil, err
		}
	}
	db := newDB(o)
	if err := db.open(o, pebbleOptions(o)); err != nil {
		return nil, openError(o.Dir, err)
	}
	err := db.opener.Begin(func() error { return cmp.Or(db.checkFormat(), db.raiseFormat(), db.runs.read()) }, db.Close)
	if err != nil {
		return nil, beginError(o.Dir, db.ReadError(err))
	}
	if db.disk != nil {
		db.disk.files.BePatient() // errors until here were returned
	}
	db.registerUsed(o.Registerer)
	return db, nil
}

// newDB makes a DB without a database.
func newDB(o Options) *DB {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if o.Dir == "" {
		newMetrics(o.Registerer, func() (free, total uint64, ok bool) { return 0, 0, false })
	}
	db := &DB{
		dir: o.Dir, sync: pebble.NoSync, writes: newWrites(), opener: disk.NewOpener(log, end(o.Fatal, log)),
	}
	if o.Dir != "" {
		db.sync = pebble.Sync
		db.disk = newDiskState(o, log, db.opener)
	}
	db.runs.db = db
	return db
}

func (db *DB) open(o Options, opts *pebble.Options) error {
	if opts.EventListener == nil {
		opts.EventListener = &pebble.EventListener{DataCorruption: db.damaged}
	}
	if db.disk != nil {
		opts.FS = db.disk.files
	}
	p, err := db.opener.Open(cmp.Or(o.Dir, "memory"), opts)
	if err != nil {
		return err
	}
	db.pebble = p
	db.close = sync.OnceValue(db.shut)
	return nil
}

// pebbleOptions are for many small versions and fewer, already compressed bodies: bloom filters,
// since most look-ups of a new object miss; no block compression.
func pebbleOptions(o Options) *pebble.Options {
	opts := &pebble.Options{
		Cache:              nil,
		CacheSize:          cmp.Or(o.CacheBytes, 8<<20),
		MemTableSize:       cmp.Or(o.MemTableBytes, 4<<20),
		FormatMajorVersion: pebbleFormat,
		FS:                 o.FS,
		DisableWAL:         o.Dir == "",
		// Keys of objects come in any order, so a compaction of the first level rewrites all of the
		// one below: let more tables collect.
		L0CompactionThreshold: 16,
		L0StopWritesThreshold: 24,
		LBaseMaxBytes:         256 << 20,
	}
	if o.FS == nil && o.Dir == "" {
		opts.FS = vfs.NewMem()
	}
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.UniformDBCompressionSettings(block.NoCompression)
	})
	opts.TargetFileSizes[0] = 8 << 20 // a flush's bodies are one table
	opts.Experimental.SpanPolicyFunc = o.Spans
	opts.Experimental.CompactionScheduler = disk.Compactions()
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		opts.Levels[i].BlockSize = 4 << 10
	}
	// Flushed tables have large blocks, since each costs two writes. Below, where records are
	// looked up one by one, they are small.
	opts.Levels[0].BlockSize = 32 << 10
	return opts
}

// checkDir refuses a directory that holds something else than state, before Pebble puts its files
// among it.
func checkDir(dir string, log *slog.Logger) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory %s: %w; choose another with state.dir", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("state directory %s: %w", dir, err)
	}
	if len(entries) > 0 && !disk.HoldsDatabase(entries) {
		return fmt.Errorf("state directory %s %w: it holds other files; choose an empty "+
			"directory with state.dir", dir, ErrForeign)
	}
	if err := disk.ProtectDir(dir, log); err != nil {
		return fmt.Errorf("state directory %s %w", dir, err)
	}
	return nil
}

// openError adds the remedy to an error of opening a state directory.
func openError(dir string, err error) error {
	switch {
	case errors.Is(err, ErrDamaged):
		return err
	case errors.Is(err, disk.ErrNoManifest), errors.Is(err, disk.ErrDamaged):
		return damagedError(dir, err.Error())
	}
	switch disk.RefusalOf(err) {
	case disk.NewerFormat:
		return newerError(dir, "this one's database does not know its files")
	case disk.Locked:
		return fmt.Errorf("state directory %s %w; stop it, or give this one another directory "+
			"with state.dir", dir, ErrInUse)
	case disk.NotWritable:
		return fmt.Errorf("state directory %s is not writable: %w; make it so, or choose another "+
			"with state.dir", dir, err)
	case disk.NoSpace:
		return fmt.Errorf("state directory %s: %w; free space or choose another with state.dir",
			dir, err)
	default:
		return fmt.Errorf("state directory %s can't be opened: %w; nothing was changed: restore "+
			"it from a copy, or move it away to start with a new snapshot", dir, err)
	}
}

// beginError adds the remedy to an error of the first reads and writes.
func beginError(dir string, err error) error {
	if _, ok := errors.AsType[*disk.FatalError](err); ok {
		return openError(dir, err)
	}
	return err
}

// Runs is the mark of a run that ended in order.
func (db *DB) Runs() *Runs { return &db.runs }

// Identity is whose state this is.
func (db *DB) Identity() Identity { return Identity{db} }

// MetaKey is the key of a value that belongs to no unit: format, cluster, secret.
func MetaKey(name string) []byte { return append([]byte{'M'}, name...) }

// Pebble is the database itself, for reads: writes go through Commit and Finish.
func (db *DB) Pebble() *pebble.DB { return db.pebble }

// Get reads a value, nil when there is none. The result is the caller's.
func (db *DB) Get(key []byte) ([]byte, error) {
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

// DiskBytes is what the database takes on disk (or in memory, without a directory). While the disk
// refuses writes it is the last known size: Pebble counts only between two changes of its list of
// files.
func (db *DB) DiskBytes() uint64 {
	if db.disk == nil {
		return db.pebble.Metrics().DiskSpaceUsage()
	}
	if db.disk.files.Err() != nil {
		return db.used.Load()
	}
	counted := make(chan struct{})
	stalled := db.disk.files.Stalled()
	go func() {
		defer close(counted)
		db.used.Store(db.pebble.Metrics().DiskSpaceUsage())
	}()
	select {
	case <-counted:
	case <-stalled:
	}
	return db.used.Load()
}

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

// Close ends the database. Nothing else may be running on it. A second call does nothing. While the
// disk refuses writes it returns ErrUnavailable, and leaves the database as a crash would.
func (db *DB) Close() error {
	if err := db.close(); err != nil {
		return fmt.Errorf("close state database: %w", err)
	}
	return nil
}

// FormatVersion of the keys and values in the database, a number that grows. A directory of another
// version is refused, whichever is newer; the first version that changes it must convert older
// ones, in checkFormat.
const FormatVersion = "6"

// withoutIndexes is the format of directories that a bridge without indexes may write to. It would
// leave entries of indexes behind that are not true any more.
const withoutIndexes = "5"

// pebbleFormat is Pebble's own format. It is fixed: a newer Pebble would otherwise make a directory
// unreadable for the bridge before it without a report. The changelog must mention a higher one, as
// it does a change of FormatVersion.
const pebbleFormat = pebble.FormatValueSeparation

// checkFormat refuses a database of another format, and notes ours in a new one.
func (db *DB) checkFormat() error {
	version, err := db.Get(MetaKey("format"))
	if err != nil {
		return err
	}
	if version == nil {
		db.runs.wasClean = true
		return db.set(MetaKey("format"), []byte(FormatVersion))
	}
	if string(version) == FormatVersion || string(version) == withoutIndexes {
		return nil
	}
	difference := fmt.Sprintf("it has format %q, this bridge reads %q", version, FormatVersion)
	theirs, err := strconv.Atoi(string(version))
	ours, _ := strconv.Atoi(FormatVersion) // it is a number, as a test knows
	if err == nil && theirs > ours {
		return newerError(db.dir, difference)
	}
	return fmt.Errorf("state directory %s %w: %s; use the bridge that wrote it, or another "+
		"directory", db.dir, ErrForeign, difference)
}

// raiseFormat makes a directory ours that has all that ours have: what it lacks is built.
func (db *DB) raiseFormat() error {
	version, err := db.Get(MetaKey("format"))
	if err != nil || string(version) != withoutIndexes {
		return err
	}
	return db.set(MetaKey("format"), []byte(FormatVersion))
}

// newerError is for a directory that a newer bridge has written.
func newerError(dir, difference string) error {
	return fmt.Errorf("state directory %s %w but of a newer one: %s; nothing was changed: continue "+
		"with the newer bridge, restore a copy from before the upgrade,"+
		" or start with an empty directory and a new snapshot", dir, ErrForeign, difference)
}

// Runs is a mark in the database: the last run ended with everything that it had sent settled.
// Without one, sinks may have got events that are not known here, except announced ones.
type Runs struct {
	db *DB
	// wasClean: the run before ended in order, or there was none. Set by Open.
	wasClean bool
}

// WasClean reports whether the last run ended in order, or there was none.
func (r *Runs) WasClean() bool { return r.wasClean }

// Begin removes the mark, before anything is sent.
func (r *Runs) Begin() error {
	b := r.db.pebble.NewBatch()
	return r.db.Finish(b, pebble.Sync, b.Delete(MetaKey("clean"), nil))
}

// End sets the mark: everything that was sent is settled, and committed.
func (r *Runs) End() error { return r.db.set(MetaKey("clean"), nil) }

func (r *Runs) read() error {
	mark, err := r.db.Get(MetaKey("clean"))
	r.wasClean = r.wasClean || mark != nil
	return err
}
