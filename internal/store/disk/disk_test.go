package disk_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/store/disk"
	"github.com/kubebridge/bridge/internal/testkit"
)

// forgetful is a disk as Linux has them: what it could not write at a sync is gone, and the next
// sync succeeds.
type forgetful struct {
	vfs.FS
	fails int // syncs that do
	err   error
	syncs []int64 // what was written at each one that did not
}

type forgetfulFile struct {
	vfs.File
	disk   *forgetful
	name   string
	synced int64
	length int64
}

func (d *forgetful) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := d.FS.Create(name, category)
	return &forgetfulFile{File: file, disk: d, name: name}, err
}

func (f *forgetfulFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.length += int64(n)
	return n, err
}

func (f *forgetfulFile) SyncData() error { return f.Sync() }

func (f *forgetfulFile) Sync() error {
	if f.disk.fails == 0 {
		f.synced = f.length
		f.disk.syncs = append(f.disk.syncs, f.length)
		return f.File.Sync()
	}
	f.disk.fails--
	again, err := f.disk.FS.OpenReadWrite(f.name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = again.WriteAt(make([]byte, f.length-f.synced), f.synced)
	}
	return errors.Join(f.disk.err, err)
}

func write(t *testing.T, file vfs.File, text string) {
	t.Helper()
	_, err := file.Write([]byte(text))
	testkit.OK(t, err)
}

func read(t *testing.T, fs vfs.FS, name string) string {
	t.Helper()
	file, err := fs.Open(name)
	testkit.OK(t, err)
	defer file.Close()
	all, err := io.ReadAll(file)
	testkit.OK(t, err)
	return string(all)
}

// What a failed sync lost of a journal is written again.
func TestJournalRewrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, name := range []string{"000004.log", "MANIFEST-000001"} {
			mem := vfs.NewCrashableMem()
			slow := &forgetful{FS: mem, err: syscall.ENOSPC}
			var reported []error
			fs := disk.New(slow, "", disk.Config{Changed: func(why error) { reported = append(reported, why) }})
			fs.BePatient()
			file, err := fs.Create(name, vfs.WriteCategoryUnspecified)
			testkit.OK(t, err)
			write(t, file, "one ")
			testkit.OK(t, file.Sync())
			write(t, file, "two ")
			write(t, file, "three")
			slow.fails = 1
			testkit.OK(t, file.Sync())
			if got := read(t, mem, name); got != "one two three" {
				t.Errorf("after a sync that failed and was said to succeed %s holds %q", name, got)
			}
			if len(reported) != 2 || !errors.Is(reported[0], syscall.ENOSPC) || reported[1] != nil {
				t.Errorf("reported: %v", reported)
			}
		}
	})
}

// A long tail of a journal is written again completely.
func TestJournalLongTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		slow := &forgetful{FS: mem, err: syscall.ENOSPC}
		fs := disk.New(slow, "", disk.Config{})
		fs.BePatient()
		file, err := fs.Create("000004.log", vfs.WriteCategoryUnspecified)
		testkit.OK(t, err)
		random, all := rand.New(rand.NewPCG(1, 2)), ""
		for n := range 40 {
			part := make([]byte, random.IntN(80_000))
			for i := range part {
				part[i] = byte(random.Uint32())
			}
			all += string(part)
			write(t, file, string(part))
			if n%7 == 3 {
				slow.fails = n % 2
				testkit.OK(t, file.Sync())
			}
		}
		slow.fails = 1
		testkit.OK(t, file.Sync())
		if read(t, mem, "000004.log") != all {
			t.Error("what lies there is not what was written")
		}
	})
}

// A failed sync of a table is reported when there is space again.
func TestTableSyncFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &forgetful{FS: vfs.NewMem(), err: syscall.ENOSPC}
		fs := disk.New(full, "", disk.Config{})
		fs.BePatient()
		file, err := fs.Create("000005.sst", vfs.WriteCategoryUnspecified)
		testkit.OK(t, err)
		write(t, file, "table")
		full.fails = 10 // the probes too
		began := time.Now()
		if err := file.Sync(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("Sync: %v; what was lost must be recreated", err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		names, err := full.List("")
		testkit.OK(t, err)
		if !slices.Equal(names, []string{"000005.sst"}) {
			t.Errorf("there are %v", names)
		}
	})
}

// Errors of another kind are passed on.
func TestOtherDiskErrors(t *testing.T) {
	broken := &forgetful{FS: vfs.NewMem(), err: syscall.EIO, fails: 2}
	fs := disk.New(broken, "", disk.Config{})
	fs.BePatient()
	for _, name := range []string{"000004.log", "000005.sst"} {
		file, err := fs.Create(name, vfs.WriteCategoryUnspecified)
		testkit.OK(t, err)
		write(t, file, "x")
		if err := file.Sync(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: Sync: %v", name, err)
		}
	}
}

// A full disk is an error until the file system is patient.
func TestFullDiskBeforePatience(t *testing.T) {
	full := &forgetful{FS: vfs.NewMem(), err: syscall.ENOSPC, fails: 1}
	file, err := disk.New(full, "", disk.Config{}).Create("000004.log", vfs.WriteCategoryUnspecified)
	testkit.OK(t, err)
	write(t, file, "x")
	if err := file.Sync(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Sync: %v", err)
	}
}

// A journal that is not synced keeps little in memory.
func TestJournalMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := &forgetful{FS: vfs.NewCrashableMem()}
		fs := disk.New(mem, "", disk.Config{})
		file, err := fs.Create("000004.log", vfs.WriteCategoryUnspecified)
		testkit.OK(t, err)
		block := bytes.Repeat([]byte("x"), 1<<20)
		for range 10 {
			write(t, file, string(block))
		}
		if !slices.Equal(mem.syncs, []int64{4 << 20, 8 << 20}) {
			t.Errorf("synced at %v", mem.syncs)
		}
	})
}
