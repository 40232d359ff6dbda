package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A pending change is given up when the file changes again.
func TestReloadSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "bridge.yaml")
		write := func(text string) { testkit.OK(t, os.WriteFile(file, []byte(text), 0o600)) }
		write("v2")
		changed := false
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			whileSame(ctx, contentOf(file), []string{file}, func() { changed = true })
		}()
		time.Sleep(10 * sameInterval)
		synctest.Wait()
		if changed {
			t.Fatal("the file has not changed")
		}
		write("v3")
		if <-ended; !changed {
			t.Error("the file has changed")
		}
		time.AfterFunc(10*sameInterval, cancel)
		whileSame(ctx, contentOf(file), []string{file}, func() { t.Error("it ended, and the file has not changed") })
	})
}

// A command that only the leader can carry out is a conflict.
func TestStandbyConflict(t *testing.T) {
	_, err := done(fmt.Errorf("%w; ask pod-0, which leads", bridge.ErrStandby), "")
	if refused, ok := errors.AsType[*admin.Error](err); !ok || refused.Code != http.StatusConflict {
		t.Errorf("got %v", err)
	}
}

// A change that a full disk refuses is tried again with the same file.
func TestReloadOnFullDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	testkit.OK(t, os.WriteFile(file, []byte("informers: []"), 0o600))
	full := fmt.Errorf("nothing was changed: %w", statedb.ErrUnavailable)
	load := func() (*config.Config, error) { return nil, full } // as if it came this far
	r := newReloader(&Options{Input: NewConfigInput(file, load), Log: slog.New(slog.DiscardHandler)}, newOutcome(nil))
	r.assembler = &assembler{config: &config.Config{}}
	r.changing.Release(1)
	_, err := r.reload(t.Context(), "a test")
	if !errors.Is(err, errNotNow) {
		t.Errorf("reload: %v", err)
	}
	if _, done := r.readFiles(t.Context()); done {
		t.Error("the file is not looked at again")
	}
	_, err = done(err, "")
	if refused, ok := errors.AsType[*admin.Error](err); !ok || refused.Code != http.StatusServiceUnavailable {
		t.Errorf("the command has the answer %v", err)
	}
}

// A file that is refused again and again is so since the first time, until one is applied.
func TestRefusedSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutcome(nil)
		bad := errors.New("bad")
		o.record("a test", bridge.Changes{}, nil)
		if s := o.status(); !s.RefusedSince.IsZero() {
			t.Errorf("nothing is refused: %+v", s)
		}
		began := time.Now()
		for range 2 {
			o.record("a test", bridge.Changes{}, bad)
			if s := o.status(); !s.RefusedSince.Equal(began) {
				t.Errorf("refused since %v, want %v", s.RefusedSince, began)
			}
			time.Sleep(time.Minute)
		}
		o.record("a test", bridge.Changes{}, nil)
		if s := o.status(); !s.RefusedSince.IsZero() {
			t.Errorf("it was applied: %+v", s)
		}
	})
}
