package bridge_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/sinks"
	kept "github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// smallDisk mounts a file system of some bytes and works in it.
func smallDisk(t *testing.T, size int) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		t.Skipf("a small file system can't be mounted here (%v): it takes root", err)
	}
	t.Cleanup(func() { testkit.OK(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	t.Chdir(dir) // back before the cleanup
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	testkit.OK(t, err)
	for block := make([]byte, 64<<10); len(block) > 512; {
		if _, err = file.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		}
	}
	testkit.OK(t, file.Close())
}

// A real disk that fills up and is freed under load loses nothing.
// The file system is real, the time is not.
func TestFullRealDisk(t *testing.T) {
	smallDisk(t, 24<<20)
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.wrap = func(vfs.FS) vfs.FS { return vfs.Default }
		r.cfg.Units[0].Memory = 256 << 10
		for i := range 7 {
			r.Create(resource.MakeKey("shop", fmt.Sprint("p", i)), nil)
		}
		r.start()
		b.Seen = 8
		const rounds, changes = 3, 500
		for round := range rounds {
			fill(t, "filler")
			lines := r.churnNoise(round*changes, (round+1)*changes)
			stuck := ""
			for range 100 {
				r.settle()
				if stuck = fmt.Sprint(r.Ready()); strings.Contains(stuck, "is full") {
					break
				}
				lines = append(lines, r.churnNoise(7000, 7100)...)
			}
			if !strings.Contains(stuck, "is full: nothing can be committed; free space") {
				t.Fatalf("round %d: on a full disk it is not stuck: %s", round, stuck)
			}
			time.Sleep(time.Minute)
			testkit.OK(t, os.Remove("filler"))
			r.catchUp()
			expect(t, b, lines...)
		}
		if left, err := filepath.Glob("state/*.probe"); err != nil || len(left) > 0 {
			t.Errorf("probes are left: %v, %v", left, err)
		}
		_, err := r.end()
		testkit.OK(t, err)
		r.start()
		_, err = r.end()
		testkit.OK(t, err)
		expect(t, b)
		if n := strings.Count(r.log.String(), "takes writes again; nothing is lost"); n < rounds || n > 4*rounds {
			t.Errorf("in %d rounds it says %d times that the disk is full:\n%s", rounds, n, r.log)
		}
	})
}

// A history on a full disk stops no other sink.
// The history has a disk of its own, which is full: it is reported, and the other sink continues.
func TestFullHistoryDisk(t *testing.T) {
	smallDisk(t, 24<<20)
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		archive, err := kept.New(kept.Options{Config: kept.Config{Dir: "history"}, Env: sinks.Env{Log: r.cfg.Log}})
		testkit.OK(t, err)
		r.addSink("kept", archive)
		for i := range 7 {
			r.Create(resource.MakeKey("shop", fmt.Sprint("p", i)), nil)
		}
		r.start()
		r.settle()
		b.Seen = 8
		fill(t, "filler")
		lines := r.churnNoise(0, 500)
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, b, lines...)
		if why := archive.Blocked(); why == nil || !strings.Contains(why.Error(), "its volume is nearly full") {
			t.Errorf("the history is blocked by: %v", why)
		}
		if logged := r.log.String(); !strings.Contains(logged, "the history's volume is nearly full") {
			t.Errorf("the log has nothing of it:\n%s", logged)
		}
		testkit.OK(t, os.Remove("filler"))
		for range 60 {
			if archive.Blocked() == nil {
				break
			}
			r.settle()
		}
		if why := archive.Blocked(); why != nil {
			t.Errorf("there is room, and it is blocked by %v", why)
		}
		_, err = r.end() // when everything is stored
		testkit.OK(t, err)
	})
}
