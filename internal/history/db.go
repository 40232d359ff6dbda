package history

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/history/keys"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/record"
	"github.com/kubebridge/bridge/internal/store/disk"
)

// Errors that a caller decides by. Each continues "history <dir> …".
var (
	// ErrNone: nothing was ever written to the directory.
	ErrNone = errors.New("there is no history")
	// ErrForeign: the directory holds something else, or a history of another format.
	ErrForeign = errors.New("is not one of this version of the bridge")
	// ErrInUse: another process writes to the directory.
	ErrInUse = errors.New("is written by another process")
	// ErrDamaged: a file is not what was written.
	ErrDamaged = errors.New("its files are damaged")
	// ErrOtherCluster: events of another cluster came under a name that is known.
	ErrOtherCluster = errors.New("holds another cluster of this name")
)

// FormatVersion of keys and values, a number that grows. A directory of another version is refused.
const FormatVersion = "6"

// pebbleFormat is Pebble's own format. It is fixed, as that of the state directory is.
const pebbleFormat = pebble.FormatValueSeparation

// Options of a DB. Zero values mean the documented default.
type Options struct {
	// Dir is the directory. Open creates it when it is missing.
	Dir string
	// LastVersionsBytes bounds the newest versions of the objects that changed last, which the next
	// ones are stored as differences to. An object that is not among them is stored whole. Default
	// 64 MiB: some 10,000 pods.
	LastVersionsBytes int
	// CacheBytes is the size of the block cache; default 16 MiB.
	CacheBytes int64
	// MemTableBytes is how much is collected in memory before it is sorted to disk; default 16 MiB,
	// of which there may be two. Half as much takes a tenth to a fifth more CPU for each version.
	MemTableBytes uint64
	// FS replaces the file system, for tests.
	FS vfs.FS
	// KeepsUnsent adds each version to DB.Unsent, until it is removed there.
	KeepsUnsent bool
	// DiskFull is called with the reason when the disk begins to refuse writes, and with nil when
	// it takes them again. Append waits meanwhile. nil: a full disk is an error of Append.
	DiskFull func(why error)
	// Log; default: discarded.
	Log *slog.Logger
}

// DB is an open history: one Pebble database, with a part for each kind of user.
type DB struct {
	// Writer stores events. In a history that is open to be read (Read) it fails.
	Writer *Writer
	// Requests stores what audit logs have.
	Requests Requests
	// Unsent are the versions of which other sinks do not know the user yet.
	Unsent Unsent
	// Questions are for those who ask. They need not know that somebody writes.
	Questions *query.Questions
	// Maintenance is for the owner of the directory.
	Maintenance Maintenance

	shared *database
	close  func() error
}

// Open opens a history to write to it, or creates one. It never repairs: what it does not
// understand it refuses, with an error that says what to do.
func Open(o Options) (*DB, error) {
	if o.FS == nil {
		if err := makeDir(o); err != nil {
			return nil, err
		}
	}
	return open(o, false)
}

func open(o Options, readOnly bool) (*DB, error) {
	db := &database{
		dir: o.Dir, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), units: newUnits(),
		failed: make(chan struct{}), sync: pebble.Sync,
	}
	opener := disk.NewOpener(db.log, db.fail)
	opts := pebbleOptions(o)
	opts.EventListener = &pebble.EventListener{DataCorruption: db.foundDamage}
	opts.ReadOnly, opts.ErrorIfNotExists = readOnly, readOnly
	db.disk = disk.New(opts.FS, o.Dir, disk.Config{Changed: o.DiskFull, Failed: opener.Fail})
	opts.FS = db.disk
	var err error
	if db.pebble, err = opener.Open(o.Dir, opts); err != nil {
		return nil, openError(o.Dir, err)
	}
	opened := &DB{
		Writer: newWriter(db, cmp.Or(o.LastVersionsBytes, 64<<20)), Questions: query.New(db),
		Requests: Requests{db}, Unsent: Unsent{db}, Maintenance: Maintenance{db}, shared: db, close: sync.OnceValue(func() error {
			defer db.disk.Close()
			return db.pebble.Close()
		}),
	}
	err = opener.Begin(func() error {
		err := cmp.Or(db.checkFormat(readOnly), db.units.load(db.pebble))
		if err == nil && !readOnly {
			opened.Writer.unsent, err = opened.Unsent.open(o.KeepsUnsent)
		}
		return err
	}, opened.Close)
	if _, isStuck := errors.AsType[*disk.FatalError](err); isStuck {
		return nil, fmt.Errorf("history %s can't be written: %w; see to its disk and restart", o.Dir, err)
	}
	if err != nil {
		return nil, db.ReadError(err)
	}
	if o.DiskFull != nil {
		db.disk.BePatient() // errors until here were returned
	}
	return opened, nil
}

// Health is why nothing can be stored, and what to do; nil while it can be.
func (db *DB) Health() error {
	select {
	case <-db.shared.failed:
		return fmt.Errorf("%w; see to its disk and restart", db.shared.err)
	default:
	}
	why := db.shared.disk.Err()
	if why == nil {
		why = db.Maintenance.Room()
	}
	if why == nil {
		return nil
	}
	return fmt.Errorf("history %s: %w; %s", db.shared.dir, why, disk.Remedy(why))
}

// Damage is the first damage that was found while the history was open, and what to do; nil for
// none. Events for which nothing damaged is read are stored all the same.
func (db *DB) Damage() error {
	d := &db.shared.damage
	d.mu.Lock()
	what, smallest, largest := d.what, d.smallest, d.largest
	d.mu.Unlock()
	if what == "" {
		return nil
	}
	return damagedError(db.shared.dir, what+db.shared.versionsBetween(smallest, largest))
}

// IsStuck reports whether operations on the database may not return: they wait for the disk, or the
// database can't continue.
func (db *DB) IsStuck() bool {
	select {
	case <-db.shared.failed: // Pebble holds its locks
		return true
	default:
		return db.shared.disk.Err() != nil
	}
}

// Close ends the database. Nothing else may be running on it. A second call does nothing. One that
// IsStuck is left as a crash would leave it: what was stored is stored.
func (db *DB) Close() error {
	if db.IsStuck() {
		return nil
	}
	db.shared.commits.Wait() // whose callers have not waited
	return db.close()
}

// pebbleOptions are for the layout that was measured as the smallest and fastest: blocks of 64 KiB,
// minlz.
func pebbleOptions(o Options) *pebble.Options {
	opts := &pebble.Options{
		CacheSize:             cmp.Or(o.CacheBytes, 16<<20),
		MemTableSize:          cmp.Or(o.MemTableBytes, 16<<20),
		FormatMajorVersion:    pebbleFormat,
		FS:                    cmp.Or(o.FS, vfs.Default),
		L0CompactionThreshold: 8,
		L0StopWritesThreshold: 24,
		LBaseMaxBytes:         64 << 20,
	}
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.UniformDBCompressionSettings(block.MinLZCompression)
	})
	opts.Experimental.CompactionScheduler = disk.Compactions()
	for i := range opts.Levels {
		// An event that may be a repeat is looked up by its key.
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		opts.Levels[i].BlockSize = 64 << 10
	}
	return opts
}

// makeDir makes the directory, or checks the one that exists.
func makeDir(o Options) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("history %s: %w; choose another directory", o.Dir, err)
	}
	if err := checkDir(o.Dir, true); err != nil {
		return err
	}
	if err := disk.ProtectDir(o.Dir, cmp.Or(o.Log, slog.New(slog.DiscardHandler))); err != nil {
		return fmt.Errorf("history %s %w", o.Dir, err)
	}
	return nil
}

// checkDir refuses a directory that holds something else, before a file is put among it.
func checkDir(dir string, create bool) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !create && len(entries) == 0:
		return fmt.Errorf("history %s: %w: nothing was written to it", dir, ErrNone)
	case err != nil:
		return fmt.Errorf("history %s: %w", dir, err)
	case len(entries) > 0 && !disk.HoldsDatabase(entries):
		want := "give the directory of a history"
		if create {
			want += ", or an empty one"
		}
		return fmt.Errorf("history %s %w: it holds other files; %s", dir, ErrForeign, want)
	}
	return nil
}

// openError adds the remedy to an error of opening a history.
func openError(dir string, err error) error {
	switch {
	case errors.Is(err, ErrDamaged):
		return err
	case errors.Is(err, disk.ErrNoManifest), errors.Is(err, disk.ErrDamaged):
		return damagedError(dir, err.Error())
	}
	switch disk.RefusalOf(err) {
	case disk.NewerFormat:
		return fmt.Errorf("history %s %w but of a newer one; nothing was changed: use the newer bridge",
			dir, ErrForeign)
	case disk.Locked:
		return fmt.Errorf("history %s %w; stop it, or give this one another directory", dir, ErrInUse)
	case disk.NotWritable:
		return fmt.Errorf("history %s is not writable: %w", dir, err)
	case disk.NoSpace:
		return fmt.Errorf("history %s: the disk is full: %w; make room", dir, err)
	case disk.OtherRefusal:
	}
	return fmt.Errorf("history %s can't be opened: %w; nothing was changed: restore it from a copy, "+
		"or move it away and read the stream again", dir, err)
}

func damagedError(dir, what string) error {
	return fmt.Errorf("history %s: %w: %s; nothing was changed: restore it from a copy, or move it "+
		"away and read the stream again", dir, ErrDamaged, what)
}

// database is what the parts of a DB share. It is the source of the questions.
type database struct {
	pebble *pebble.DB
	dir    string
	log    *slog.Logger
	units  units
	// failed is closed when the database can't continue; err is why.
	failed chan struct{}
	err    error
	sync   *pebble.WriteOptions
	// commits are those that have not ended.
	commits sync.WaitGroup
	disk    *disk.FS
	room    atomic.Pointer[room]
	damage  damage
}

// damage is what is wrong with the files. Each attempt to read them finds it again.
type damage struct {
	mu                sync.Mutex
	what              string    // guarded by mu: the first, "" for none
	smallest, largest []byte    // guarded by mu: keys of its file
	next              time.Time // guarded by mu: when it may be logged again
	suppressed        int       // guarded by mu: times it was not logged since
}

// foundDamage logs damage, at most once a minute.
func (db *database) foundDamage(i pebble.DataCorruptionInfo) {
	d, now := &db.damage, time.Now()
	d.mu.Lock()
	if d.what == "" {
		d.what, _, _ = strings.Cut(fmt.Sprint(i.Details), "\n")
		d.smallest, d.largest = slices.Clone(i.Bounds.Start), slices.Clone(i.Bounds.End.Key)
	}
	if now.Before(d.next) {
		d.suppressed++
		d.mu.Unlock()
		return
	}
	suppressed := d.suppressed
	d.next, d.suppressed = now.Add(time.Minute), 0
	d.mu.Unlock()
	db.log.Error("the history is damaged: restore it from a copy, or move it away", "dir", db.dir,
		"file", i.Path, "details", fmt.Sprint(i.Details), "suppressed", suppressed)
}

// versionsBetween names the versions whose keys lie between two: those that a damaged file had. It
// is "" where there are none.
func (db *database) versionsBetween(smallest, largest []byte) string {
	if len(smallest) == 0 || len(largest) == 0 || smallest[0] > keys.SpaceVersion ||
		largest[0] < keys.SpaceVersion {
		return ""
	}
	return fmt.Sprintf("; lost are versions from %s to %s",
		cmp.Or(db.versionAt(smallest), "the first"), cmp.Or(db.versionAt(largest), "the last"))
}

// versionAt names the version of a key; "" for a key of something else.
func (db *database) versionAt(key []byte) string {
	if key[0] != keys.SpaceVersion {
		return ""
	}
	_, namespace, name, sequence, ok := keys.SplitVersion(key)
	if !ok {
		return ""
	}
	u := db.units.numbered(binary.BigEndian.Uint32(key[1:]))
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%s of %s %s/%s", sequence.ResourceVersion(), u.Resource, namespace, name)
}

// ReadError adds to damage what can be done about it. The first line of Pebble's own text is
// enough.
func (db *database) ReadError(err error) error {
	if err == nil || !pebble.IsCorruptionError(err) && !errors.Is(err, record.ErrUnreadable) &&
		!errors.Is(err, record.ErrMisfit) {
		return err
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	return damagedError(db.dir, what)
}

func (db *database) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	return db.pebble.NewIter(o)
}

// Units returns all units, in the order in which they came.
func (db *database) Units() []*record.Unit { return db.units.all() }

func (db *database) Reached(u *record.Unit) (era uint32, version uint64, err error) {
	r, err := db.highestOf(u)
	return r.era, r.version, err
}

func (db *database) Trimmed(u *record.Unit) (era uint32, version uint64, err error) {
	value, err := db.get(keys.Trimmed(u.Number))
	if err != nil || value == nil {
		return 0, 0, err
	}
	if len(value) != 4+8 {
		return 0, 0, record.ErrUnreadable
	}
	return binary.BigEndian.Uint32(value), binary.BigEndian.Uint64(value[4:]), nil
}

func (db *database) Kinds(u *record.Unit) []string { return db.units.kindsOf(u) }

// Unit returns the unit of a number, nil for none.
func (db *database) Unit(number uint32) *record.Unit { return db.units.numbered(number) }

// checkFormat refuses a database of another format, and writes ours into a new one.
func (db *database) checkFormat(readOnly bool) error {
	version, err := db.get(keys.Meta("format"))
	switch {
	case err != nil:
		return err
	case version == nil && db.isEmpty() && !readOnly:
		return db.pebble.Set(keys.Meta("format"), []byte(FormatVersion), db.sync)
	case version == nil && readOnly && db.isEmpty():
		return fmt.Errorf("history %s: %w: nothing was written to it", db.dir, ErrNone)
	case version == nil:
		return fmt.Errorf("history %s %w: its database is another's, as that of the state directory",
			db.dir, ErrForeign)
	case string(version) != FormatVersion:
		return fmt.Errorf("history %s %w: it has format %q, this bridge reads %q; use the bridge that "+
			"wrote it, or another directory", db.dir, ErrForeign, version, FormatVersion)
	}
	return nil
}

func (db *database) isEmpty() bool {
	it, err := db.pebble.NewIter(nil)
	if err != nil {
		return false
	}
	defer it.Close()
	return !it.First() && it.Error() == nil
}

// get reads a value, nil when there is none. The result is the caller's.
func (db *database) get(key []byte) ([]byte, error) {
	value, closer, err := db.pebble.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := append([]byte{}, value...)
	return out, closer.Close()
}

// horizonKey has the time before which only the last versions are kept.
var horizonKey = keys.Meta("horizon")

// Horizon returns what Coverage.Horizon answers.
func (db *database) Horizon() (time.Time, error) {
	value, err := db.get(horizonKey)
	if err != nil || len(value) != 4 {
		return time.Time{}, db.ReadError(err)
	}
	return time.Unix(int64(binary.BigEndian.Uint32(value)), 0), nil
}

// fail ends everything that waits for the database. The opener calls it once.
func (db *database) fail(err error) {
	db.err = fmt.Errorf("history %s can't continue: %w", db.dir, err)
	db.log.Error("the history can't continue; see to its disk and restart", "dir", db.dir, "err", err)
	close(db.failed)
}

// IsUnavailable reports whether an error means that the disk takes no writes, and may take them
// again.
func IsUnavailable(err error) bool { return disk.Unavailable(err) || errors.Is(err, ErrNoRoom) }
