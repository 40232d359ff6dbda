package statedb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/store/disk"
)

// ErrUnavailable is the error while the disk is full or read-only. Nothing is lost: the commit can
// be made again later.
var ErrUnavailable = errors.New("nothing can be committed")

// writes are the running ones.
type writes struct {
	released chan struct{} // closed by Release
	release  func()

	mu   sync.Mutex
	left chan error // guarded by mu: a commit whose caller has stopped waiting, nil for none
}

func newWrites() writes {
	released := make(chan struct{})
	return writes{released: released, release: sync.OnceFunc(func() { close(released) })}
}

// Release ends all waiting for a disk that refuses writes, permanently: waiting and later calls
// fail with ErrUnavailable. It is for a stop that can't wait.
func (db *DB) Release() { db.writes.release() }

// NewBatch begins a batch for Commit.
func (db *DB) NewBatch() *pebble.Batch {
	if db.disk != nil {
		db.disk.checkSpace()
	}
	return db.pebble.NewBatch()
}

// Commit writes a batch, and takes it over. While the disk refuses writes it fails with
// ErrUnavailable: the batch may still be written when the disk accepts writes again, before any
// later one.
func (db *DB) Commit(batch *pebble.Batch) error { return wrapOther(db.commit(batch)) }

func (db *DB) commit(batch *pebble.Batch) error {
	if err := db.Unavailable(); err != nil {
		return errors.Join(err, batch.Close())
	}
	if db.disk == nil {
		return errors.Join(batch.Commit(db.sync), batch.Close())
	}
	done := make(chan error, 1)
	stalled := db.disk.files.Stalled() // before the write begins: it may stall the disk itself
	go func() {
		done <- db.guard(func() error {
			return errors.Join(batch.Commit(db.sync), batch.Close())
		})
	}()
	select {
	case err := <-done:
		return err
	case <-stalled:
	}
	db.writes.mu.Lock()
	defer db.writes.mu.Unlock()
	db.writes.left = done
	return db.leftLocked()
}

// Unavailable is why nothing can be committed now, nil when commits are possible.
func (db *DB) Unavailable() error {
	if db.disk == nil {
		return nil
	}
	if err := db.disk.err(); err != nil {
		return err
	}
	db.writes.mu.Lock()
	defer db.writes.mu.Unlock()
	return db.leftLocked()
}

// WaitAvailable waits until commits can be made, or until ctx ends.
func (db *DB) WaitAvailable(ctx context.Context) error {
	const again = 100 * time.Millisecond
	for db.Unavailable() != nil {
		if err := ratelimit.Sleep(ctx, again); err != nil {
			return err
		}
	}
	return nil
}

// leftLocked returns an error while a commit that was abandoned is still to be written: it must not
// be written after a later one.
func (db *DB) leftLocked() error {
	if db.writes.left == nil {
		return nil
	}
	select {
	case err := <-db.writes.left:
		db.writes.left = nil
		return err
	default:
		if err := db.disk.err(); err != nil {
			return err
		}
		return fmt.Errorf("state directory %s: %w: an earlier commit is still being written",
			db.dir, ErrUnavailable)
	}
}

// write does a write that must not fail for lack of space: it waits, until Release is called.
func (db *DB) write(op func() error) error {
	if db.disk == nil {
		return Wrap(op())
	}
	done := make(chan error, 1)
	go func() { done <- db.guard(op) }()
	select {
	case err := <-done:
		return Wrap(err)
	case <-db.disk.files.Stalled():
	}
	select {
	case err := <-done:
		return Wrap(err)
	case <-db.writes.released:
		return fmt.Errorf("state directory %s: %w, and this is the end", db.dir, ErrUnavailable)
	}
}

// guard turns a panic of Pebble into an error: Pebble panics when its log could not be written
// before.
func (db *DB) guard(op func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("state database: %v", r)
			db.opener.Fail(err)
		}
	}()
	return op()
}

// set writes a value as a commit of its own.
func (db *DB) set(key, value []byte) error {
	batch := db.pebble.NewBatch()
	if err := batch.Set(key, value, nil); err != nil {
		return Wrap(errors.Join(err, batch.Close()))
	}
	return db.Commit(batch)
}

// Finish commits a batch for a caller that can't try again: it waits for the disk, until Release is
// called. The batch is taken over. In memory sync means nothing.
func (db *DB) Finish(batch *pebble.Batch, sync *pebble.WriteOptions, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return Wrap(errors.Join(err, batch.Close()))
	}
	if db.disk == nil {
		sync = db.sync
	}
	return db.write(func() error { return errors.Join(batch.Commit(sync), batch.Close()) })
}

// wrapOther wraps an error that does not name the state directory itself.
func wrapOther(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return Wrap(err)
}

// shut closes the database, unless the disk prevents that from ending.
func (db *DB) shut() error {
	if db.disk == nil {
		return db.pebble.Close()
	}
	done := make(chan error, 1)
	go func() {
		err := db.pebble.Close()
		db.disk.files.Close()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-db.disk.files.Stalled():
		return db.disk.err()
	}
}

// Wrap marks an error of Pebble's as the state database's; nil stays nil.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("state database: %w", err)
}

// diskState is the state of the disk under the database.
type diskState struct {
	files   *disk.FS
	inner   vfs.FS
	dir     string
	log     *slog.Logger
	metrics *metrics
	began   time.Time // of the last stall; set and read in changed only

	scarce atomic.Bool  // there is less than the reserve
	left   atomic.Int64 // free bytes; -1 before that was checked, and where it is not known
	mu     sync.Mutex
	looked time.Time // guarded by mu: when that was checked
}

func newDiskState(o Options, log *slog.Logger, opener *disk.Opener) *diskState {
	d := &diskState{inner: cmp.Or(o.FS, vfs.Default), dir: o.Dir, log: log}
	d.left.Store(-1)
	d.files = disk.New(d.inner, o.Dir, disk.Config{
		Changed: d.changed,
		Failed: func(err error) {
			opener.Fail(fmt.Errorf("state directory %s can't be written: %w; nothing is lost: "+
				"see to the disk, or start with a copy on another", o.Dir, err))
		},
	})
	d.metrics = newMetrics(o.Registerer, d.free)
	return d
}

// changed logs, once each time, that the disk refuses writes, and that it accepts them again.
func (d *diskState) changed(why error) {
	d.metrics.unavailable(why)
	if why == nil {
		d.log.Info("the state directory takes writes again", "dir", d.dir,
			"after", time.Since(d.began).Round(time.Second).String())
		return
	}
	d.began = time.Now()
	d.log.Error("nothing is committed until the state directory takes writes again; nothing is "+
		"lost, and no restart is needed",
		"dir", d.dir, "err", why, "remedy", disk.Remedy(why))
}

// err is why the disk refuses writes, and what to do.
func (d *diskState) err() error {
	why := d.files.Err()
	switch {
	case why == nil:
		return nil
	case disk.ReadOnly(why):
		return fmt.Errorf("state directory %s is read-only: %w; %s", d.dir, ErrUnavailable,
			disk.Remedy(why))
	default:
		return fmt.Errorf("state directory %s is full: %w; %s", d.dir, ErrUnavailable, disk.Remedy(why))
	}
}

// free is the space that is left, in bytes; ok is false when the file system does not report it.
func (d *diskState) free() (free, total uint64, ok bool) {
	usage, err := d.inner.GetDiskUsage(d.dir)
	return usage.AvailBytes, usage.TotalBytes, err == nil && usage.TotalBytes > 0
}

// maxReserve bounds what is left free for what frees space: commits that drop settled entries, and
// compactions.
const maxReserve = 64 << 20

// reserve of a disk of a size: no more than a twentieth of it.
func reserve(total uint64) uint64 { return min(maxReserve, total/20) }

// shareOfFree is how many times the free space the log of one informer may take: so the flood of
// one resource leaves a quarter of the disk's room to all others, which share it.
const shareOfFree = 3

// Room reports whether there is space to spool changes for an informer that has used some bytes for
// that. It is false before the disk is full, so that spooled changes can still be settled and
// dropped. It does no I/O: the answer is that of the last commit, or of Look.
func (db *DB) Room(used int64) bool {
	d := db.disk
	if d == nil || d.scarce.Load() {
		return d == nil
	}
	left := d.left.Load()
	return left < 0 || used/shareOfFree <= left
}

// Look checks the disk again where there is no Room. While reading waits for space nothing may be
// committed, so nobody else finds out that space was freed. It costs nothing while there is Room.
func (db *DB) Look(used int64) {
	if !db.Room(used) {
		db.disk.checkSpace()
	}
}

// checkSpace checks, once a second, how much space is left.
func (d *diskState) checkSpace() {
	d.mu.Lock()
	recent := time.Since(d.looked) < time.Second
	if !recent {
		d.looked = time.Now()
	}
	d.mu.Unlock()
	if recent {
		return
	}
	free, total, ok := d.free()
	if ok {
		d.left.Store(int64(min(free, math.MaxInt64)))
	}
	scarce := ok && free < reserve(total)
	if before := d.scarce.Swap(scarce); scarce && !before {
		d.log.Error("the state directory is nearly full: no more changes are put there, and "+
			"reading waits for the sinks",
			"dir", d.dir, "free_bytes", free, "reserve_bytes", reserve(total),
			"remedy", "free space, or make the volume larger")
	}
}

// Health is why the state directory needs somebody's attention, nil when it does not.
func (db *DB) Health() error {
	if db.disk == nil {
		return nil
	}
	if err := db.disk.err(); err != nil {
		return err
	}
	if db.disk.scarce.Load() {
		return fmt.Errorf("state directory %s is nearly full: changes are not spooled "+
			"any more; free space, or make the volume larger", db.dir)
	}
	return nil
}

// end returns the function that ends the process when the database can't continue: report, or one
// that logs why and exits. Pebble's own messages begin with the name of the database.
func end(report func(error), log *slog.Logger) func(error) {
	if report == nil {
		report = func(err error) {
			log.Error("the state database can't continue", "err", err)
			os.Exit(1)
		}
	}
	return func(err error) {
		if _, ok := errors.AsType[*disk.FatalError](err); ok {
			err = fmt.Errorf("state database: %w", err)
		}
		report(err)
	}
}

// damaged is called when any read finds a file that is not as it was written.
func (db *DB) damaged(info pebble.DataCorruptionInfo) {
	what, _, _ := strings.Cut(fmt.Sprint(info.Details), "\n")
	db.opener.Fail(damagedError(db.dir, fmt.Sprintf("%s: %s", path.Base(info.Path), what)))
}

// damagedError adds what can be done about damage.
func damagedError(dir, what string) error {
	return fmt.Errorf("state directory %s: %w: %s; nothing was changed: restore it from a copy, "+
		"or move it away to start with a new snapshot", dir, ErrDamaged, strings.TrimPrefix(what,
		"state database: "))
}

type metrics struct {
	unavailableNow *prometheus.GaugeVec
}

// Reasons why a disk takes no writes, as labels.
const (
	reasonFull     = "full"
	reasonReadOnly = "read-only"
)

func newMetrics(reg prometheus.Registerer, free func() (free, total uint64, ok bool)) *metrics {
	f := metric.With(reg)
	f.GaugeFunc("bridge_store_free_bytes",
		"Space left for the state directory; NaN when the file system does not report it.",
		func() float64 {
			if left, _, ok := free(); ok {
				return float64(left)
			}
			return math.NaN()
		})
	return &metrics{unavailableNow: f.Gauges("bridge_store_unavailable",
		"1 while commits wait because the state directory takes no writes, by reason.",
		"reason", reasonFull, reasonReadOnly)}
}

func (m *metrics) unavailable(why error) {
	m.unavailableNow.WithLabelValues(reasonFull).Set(metric.Flag(disk.Full(why)))
	m.unavailableNow.WithLabelValues(reasonReadOnly).Set(metric.Flag(disk.ReadOnly(why)))
}

// registerUsed shows what the database takes.
func (db *DB) registerUsed(reg prometheus.Registerer) {
	metric.With(reg).GaugeFunc("bridge_store_used_bytes",
		"Bytes that the state database takes: settled states, and spooled changes.",
		func() float64 { return float64(db.DiskBytes()) })
}
