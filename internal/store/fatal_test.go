package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// reported waits for why the database can't continue.
func reported(t *testing.T, fatal <-chan error) error {
	t.Helper()
	select {
	case err := <-fatal:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is reported")
		return nil
	}
}

// A damaged table ends the process, with what can be done.
func TestDamagedTable(t *testing.T) {
	dir := leaveTables(t)
	for _, table := range tablesOfBodies(t, dir) {
		flipBit(t, table)
	}
	fatal := make(chan error, 1)
	// a second one would block
	db, err := store.Open(statedb.Options{Dir: dir, Fatal: func(err error) { fatal <- err }})
	// else a compaction has met it while it was opened
	if err == nil {
		defer db.Close()
		for item, err := range newIndexer(t, db).All() {
			if err == nil {
				_, err = item.Object()
			}
			if err != nil {
				break // Pebble looks long for the bit that was flipped
			}
		}
		err = reported(t, fatal)
	}
	if !strings.Contains(fmt.Sprint(err), ".sst: ") {
		t.Errorf("reported: %v", err)
	}
	isDamage(t, err)
}

// A damaged table that is read first is reported by Open.
func TestDamagedTableAtOpen(t *testing.T) {
	dir := leaveTables(t)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	testkit.OK(t, err)
	for _, table := range tables {
		flipBit(t, table)
	}
	_, err = store.Open(statedb.Options{Dir: dir, Fatal: func(error) {}})
	isDamage(t, err)
}

// isDamage checks that an error says what can be done, in one line.
func isDamage(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, statedb.ErrDamaged) || !strings.Contains(err.Error(), "restore it from a copy, or move it away") || strings.Contains(err.Error(), "\n") {
		t.Errorf("it is reported as: %v", err)
	}
}

// tablesOfBodies are the sorted tables that hold bodies: the large ones.
func tablesOfBodies(t *testing.T, dir string) []string {
	t.Helper()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	testkit.OK(t, err)
	sizes, largest := map[string]int64{}, int64(0)
	for _, table := range tables {
		info, err := os.Stat(table)
		testkit.OK(t, err)
		sizes[table] = info.Size()
		largest = max(largest, info.Size())
	}
	return slices.DeleteFunc(tables, func(table string) bool { return sizes[table] <= largest/2 })
}

// flipBit damages a file.
func flipBit(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	testkit.OK(t, err)
	data[0] ^= 1 // of the first block: Pebble tries each bit in turn, to say which one it was
	testkit.OK(t, os.WriteFile(name, data, 0o600))
}

// A disk that fails ends the process, and what was committed is there.
func TestFailingDisk(t *testing.T) {
	for name, of := range map[string]func(errorfs.Op) bool{
		"the log can't be written":       on("*.log", errorfs.OpFileWrite),
		"the log can't be synced":        on("*.log", errorfs.OpFileSync, errorfs.OpFileSyncData),
		"the list of files can't be":     on("MANIFEST-*", errorfs.OpFileWrite),
		"a new log can't be begun":       on("*.log", errorfs.OpCreate),
		"the list of files can't be put": on("MANIFEST-*", errorfs.OpFileSync),
	} {
		t.Run(name, func(t *testing.T) {
			fatal := make(chan error, 1)
			disk, mem := &faults{}, vfs.NewCrashableMem()
			u := &unwell{t: t, disk: disk, acked: map[resource.Key]string{}}
			u.fatal = func(err error) { fatal <- err }
			u.open(mem)
			testkit.OK(t, u.commit())
			disk.set(syscall.EIO, of)
			stop := make(chan struct{})
			go func() { // it may never come back
				defer close(stop)
				for u.commit() == nil {
				}
			}()
			err := reported(t, fatal)
			if !errors.Is(err, syscall.EIO) && !strings.Contains(err.Error(), "input/output error") || strings.Contains(err.Error(), "\n") {
				t.Errorf("reported: %v", err)
			}
			after := &unwell{t: t, disk: &faults{}, acked: map[resource.Key]string{"shop/p1": "101"}}
			after.open(mem.CrashClone(vfs.CrashCloneCfg{}))
			after.check("after the end of the process")
			testkit.OK(t, after.Close())
		})
	}
}

// A disk that is full at the start is an error, and does not end the process.
func TestFullDiskAtStart(t *testing.T) {
	used := vfs.NewCrashableMem()
	u := &unwell{t: t, disk: &faults{}, acked: map[resource.Key]string{}}
	u.open(used)
	testkit.OK(t, u.commit())
	testkit.OK(t, u.Close())
	for name, fs := range map[string]*vfs.MemFS{"new": vfs.NewCrashableMem(), "used": used} {
		for _, pattern := range []string{"*", "MANIFEST-*", "*.log", "*.dbtmp", "marker*"} {
			disk := &faults{}
			disk.set(syscall.ENOSPC, on(pattern))
			clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
			_, err := store.Open(statedb.Options{Dir: "state", FS: faulty{errorfs.Wrap(clone, disk)}, Fatal: func(err error) { t.Errorf("%s, %s: the end: %v", name, pattern, err) }})
			if !disk.hit() {
				t.Errorf("%s, %s: nothing is written at the start", name, pattern)
			}
			if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, statedb.ErrUnavailable) || !strings.Contains(err.Error(), "free space") {
				t.Errorf("%s, %s: Open: %v", name, pattern, err)
			}
		}
	}
}
