package bridge_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// moody is a disk that can be made to take no writes.
type moody struct{ refuses atomic.Pointer[syscall.Errno] }

func (m *moody) set(why syscall.Errno) { m.refuses.Store(&why) }

func (m *moody) wrap(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		why := m.refuses.Load()
		if why == nil || *why == 0 || op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose {
			return nil
		}
		return *why
	}))
}

// noise is 8 KiB of text that can't be compressed to less than half of it.
func noise(seed int) string {
	b := make([]byte, 4<<10)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = rng.Read(b) // never fails
	return hex.EncodeToString(b)
}

// churnNoise makes changes of pods with contents that fill a memtable soon, and gives the events
// that they are.
func (r *rig) churnNoise(from, to int) (lines []string) {
	for i := from; i < to; i++ {
		name := fmt.Sprint("p", i%7)
		r.Update(resource.MakeKey("shop", name), func(obj map[string]any) {
			obj["spec"] = map[string]any{"n": i, "x": noise(i)}
		})
		lines = append(lines, "updated "+name)
	}
	return lines
}

// catchUp waits until all that happened is committed.
func (r *rig) catchUp() {
	r.t.Helper()
	for range 60 {
		if r.Status().Informers[0].Watermark == string(r.Version()) {
			return
		}
		r.Streams.Bookmark()
		r.settle()
	}
	r.t.Errorf("it does not catch up with %s: %+v, %v", r.Version(), r.Status(), r.Ready())
}

// A full or read-only disk holds the bridge back, and ends nothing.
func TestFullDiskBackpressure(t *testing.T) {
	for why, words := range map[syscall.Errno]string{syscall.ENOSPC: "is full", syscall.EROFS: "is read-only"} {
		t.Run(words, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, disk := calmBroker(t, "sink"), &moody{}
				r := newRig(t, b)
				r.wrap = disk.wrap
				r.cfg.Units[0].Memory = 256 << 10
				for i := range 7 {
					r.Create(resource.MakeKey("shop", fmt.Sprint("p", i)), nil)
				}
				r.start()
				var lines []string
				for i := range 7 {
					lines = append(lines, fmt.Sprint("added p", i))
				}
				expect(t, b, append(lines, "synced")...)

				disk.set(why)
				lines = r.churnNoise(0, 2000) // more than memory holds
				time.Sleep(5 * time.Minute)
				if reasons := fmt.Sprint(r.Ready()); !strings.Contains(reasons, "state: state directory state "+words) {
					t.Errorf("Ready: %s", reasons)
				}
				s := r.Status()
				if !strings.Contains(s.State.CommitError, words) {
					t.Errorf("Status: %+v", s.State)
				}
				if n := s.Informers[0].LogBytes; n > 2*256<<10 {
					t.Errorf("%d bytes wait in the log", n)
				}
				if n := len(b.Records()); n > 1000 {
					t.Errorf("%d events were sent that can't be committed", n)
				}
				if n := strings.Count(r.log.String(), "level=ERROR"); n != 1 {
					t.Errorf("there are %d errors in the log", n)
				}
				disk.set(0)
				r.catchUp()
				expect(t, b, lines...)
				if reasons := r.Ready(); len(reasons) > 0 {
					t.Errorf("Ready: %v", reasons)
				}
				_, err := r.end()
				testkit.OK(t, err)
				r.start()
				_, err = r.end()
				testkit.OK(t, err)
				expect(t, b) // all of it was committed
			})
		})
	}
}

// A stop while the disk is full ends in time, and the rest follows after the next start.
func TestFullDiskStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, disk := calmBroker(t, "sink"), &moody{}
		r := newRig(t, b)
		r.wrap = disk.wrap
		r.Create("shop/p0", nil)
		r.start()
		expect(t, b, "added p0", "synced")
		disk.set(syscall.ENOSPC)
		r.Update("shop/p0", nil)
		r.settle()
		expect(t, b, "updated p0") // was sent, and can't be committed
		r.Update("shop/p0", nil)
		r.Create("shop/p1", nil)
		r.settle()
		after := r.fs.CrashClone(crashed)

		r.stop(errStop)
		began := time.Now()
		err := <-r.done
		if took := time.Since(began); !errors.Is(err, bridge.ErrDrain) || !errors.Is(err, statedb.ErrUnavailable) || took > 20*time.Second {
			t.Errorf("Run: %v, after %s", err, took)
		}
		if err := r.db.Close(); !errors.Is(err, statedb.ErrUnavailable) {
			t.Errorf("Close: %v", err)
		}
		disk.set(0) // lets what is stuck go, as the end of the process would
		time.Sleep(time.Minute)

		r.fs = after
		r.start()
		_, err = r.end()
		testkit.OK(t, err)
		expect(t, b, "updated p0", "updated p0", "added p1")
		records := b.Records()
		ids := map[string]int{}
		for _, rec := range records {
			ids[rec.ID]++
		}
		if n := len(slices.Compact(slices.Collect(func(yield func(string) bool) {
			for _, rec := range records {
				if ids[rec.ID] > 1 && !yield(rec.ID) {
					return
				}
			}
		}))); n != 1 {
			t.Errorf("%d ids were sent again, want the one that was not committed: %v", n, ids)
		}
	})
}

// fillsUp runs a bridge whose sink is unavailable, with a backlog on its disk. Then the disk is
// nearly full, and more comes. It gives the events that are pending, and how much was on disk
// before.
func fillsUp(t *testing.T, drop bool) (
	r *rig, b *testkit.Broker, disk *testkit.NarrowDisk, lines []string, onDisk int64,
) {
	t.Helper()
	disk = new(testkit.NarrowDisk)
	disk.Free.Store(1 << 29)
	b = calmBroker(t, "sink")
	r = newRig(t, b)
	r.wrap = func(fs vfs.FS) vfs.FS { disk.FS = fs; return disk }
	r.cfg.Units[0].Memory, r.cfg.Units[0].DropOldest = 256<<10, drop
	for i := range 7 {
		r.Create(resource.MakeKey("shop", fmt.Sprint("p", i)), nil)
	}
	r.start()
	b.Seen = 8
	b.Set(testkit.Unreachable)
	lines = r.churnNoise(0, 200)
	time.Sleep(20 * time.Second)
	if onDisk = r.Status().Informers[0].SpoolBytes; onDisk == 0 {
		t.Fatal("there is no backlog on disk")
	}
	disk.Free.Store(40 << 20) // a twentieth of 1 GiB is 51 MiB
	r.settle()
	return r, b, disk, append(lines, r.churnNoise(200, 1000)...), onDisk
}

// On a nearly full disk reading waits for the sinks, and nothing is dropped.
func TestNearlyFullDisk(t *testing.T) {
	for _, drop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r, b, disk, lines, onDisk := fillsUp(t, drop)
			time.Sleep(time.Minute)
			if n := r.Status().Informers[0].SpoolBytes; n > onDisk+512<<10 {
				t.Errorf("on a nearly full disk %d bytes wait, after %d", n, onDisk)
			}
			if reasons := fmt.Sprint(r.Ready()); !strings.Contains(reasons, "nearly full") {
				t.Errorf("Ready: %s", reasons)
			}
			b.Set(testkit.Healthy) // that makes room by itself
			time.Sleep(time.Minute)
			disk.Free.Store(1 << 29)
			r.catchUp()
			time.Sleep(time.Minute)
			expect(t, b, lines...)
			_, err := r.end()
			testkit.OK(t, err)
		})
	}
}

// When space is freed while a sink is unavailable, reading continues within seconds: else the API
// server would forget what was not read, with the disk empty.
func TestFreedDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("TestNearlyFullDisk and TestFullRealDisk free a disk too")
	}
	synctest.Test(t, func(t *testing.T) {
		r, b, disk, lines, _ := fillsUp(t, false)
		time.Sleep(time.Hour)
		if r.Status().Informers[0].Watermark == string(r.Version()) {
			t.Fatal("all was read on a nearly full disk: the test shows nothing")
		}
		disk.Free.Store(1 << 29)
		time.Sleep(3 * time.Second)
		r.catchUp()
		if reasons := fmt.Sprint(r.Ready()); strings.Contains(reasons, "state") {
			t.Errorf("Ready: %s", reasons)
		}
		before := disk.Asked.Load()
		time.Sleep(time.Hour)                                  // nothing happens
		const saved = int64(time.Hour / reflector.ClockPeriod) // times that the version clock is
		if n := disk.Asked.Load() - before; n > saved+1 {
			t.Errorf("in an hour in which nothing changes the disk is asked %d times", n)
		}
		b.Set(testkit.Healthy)
		time.Sleep(time.Minute)
		expect(t, b, lines...)
		_, err := r.end()
		testkit.OK(t, err)
	})
}
