package statedb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/kubebridge/bridge/internal/ratelimit"
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
			return errors.Join(batch.Commit(db.sync),
				batch.Close())
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
