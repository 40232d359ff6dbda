package history_test

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// openOn opens a sink on a disk. store stores the next version of an object.
func openOn(t *testing.T, files vfs.FS) (s *history.Sink, store func() error) {
	t.Helper()
	s, err := history.New(history.Options{Config: history.Config{Dir: "history"}, FS: files, Patience: time.Second})
	testkit.OK(t, err)
	testkit.OK(t, s.Open(t.Context()))
	version := 0
	return s, func() error {
		version++
		m := &sinks.Message{Event: sinktest.NewEvent("web", version, 300)}
		s.Publish(t.Context(), []*sinks.Message{m})
		return m.Err
	}
}

// What is left of a volume is for the state directory: the history stores nothing more, says so,
// and continues when there is room.
func TestNearlyFullVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &testkit.NarrowDisk{FS: vfs.NewMem()}
		disk.Free.Store(1 << 30)
		s, store := openOn(t, disk)
		testkit.OK(t, store())
		disk.Free.Store(60 << 20)
		time.Sleep(time.Second)
		if err := store(); sinks.Classify(err) != sinks.Reconnect || !strings.Contains(err.Error(), "60 MiB are left of 1024") {
			t.Errorf("stored with: %v", err)
		}
		if err := s.Blocked(); err == nil || !strings.Contains(err.Error(), "free space, or make the volume larger") {
			t.Errorf("Blocked: %v", err)
		}
		disk.Free.Store(70 << 20)
		time.Sleep(time.Second)
		testkit.OK(t, store())
		if err := s.Blocked(); err != nil {
			t.Errorf("Blocked: %v", err)
		}
		testkit.OK(t, s.Close())
	})
}

// A disk that becomes read-only is waited for. One that is broken is reported, and the sink can be
// closed.
func TestDiskFailsWhileRunning(t *testing.T) {
	for _, test := range []struct {
		err         error
		words       string
		isWaitedFor bool
	}{
		{syscall.EROFS, "mount it to be written", true},
		{syscall.EDQUOT, "free space, or make the volume larger", true},
		{syscall.EIO, "see to its disk and restart", false},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			var fails atomic.Bool
			s, store := openOn(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if fails.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
					return test.err
				}
				return nil
			})))
			testkit.OK(t, store())
			fails.Store(true)
			if err := store(); sinks.Classify(err) != sinks.Reconnect || !strings.Contains(err.Error(), test.words) {
				t.Errorf("stored with: %v", err)
			}
			if err := s.Blocked(); err == nil || !strings.Contains(err.Error(), test.words) {
				t.Errorf("Blocked: %v", err)
			}
			if test.isWaitedFor {
				fails.Store(false)
				testkit.Eventually(t, "it stores again", func() bool { return store() == nil })
			}
			testkit.OK(t, s.Close())
		})
	}
}
