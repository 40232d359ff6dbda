package history_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestCopy(t *testing.T) {
	dir, copied := filepath.Join(t.TempDir(), "h"), filepath.Join(t.TempDir(), "copy")
	db, err := history.Open(history.Options{Dir: dir, MemTableBytes: 64 << 10})
	testkit.OK(t, err)
	batches := slices.Collect(slices.Chunk(pointers(testkit.Events(t, 1, 40, 30)), 40))
	for _, batch := range batches[:20] {
		_, err := db.Writer.Append(t.Context(), batch)
		testkit.OK(t, err)
	}
	// A copy that was killed has left this.
	testkit.OK(t, os.MkdirAll(copied+".partial", 0o700))
	testkit.OK(t, os.WriteFile(filepath.Join(copied+".partial", "000002.log"), []byte("half"), 0o600))
	c, err := history.Copy(t.Context(), dir, copied)
	testkit.OK(t, err)
	for _, batch := range batches[20:] { // the writer continues
		_, err := db.Writer.Append(t.Context(), batch)
		testkit.OK(t, err)
	}
	testkit.OK(t, db.Close())

	t.Run("it has what was durable when it began", func(t *testing.T) {
		n, err := countVersions(copied)
		if err != nil || n != c.Versions || n == 0 {
			t.Errorf("%d versions, %v; Copy has counted %d", n, err, c.Versions)
		}
		if _, err := os.Stat(copied + ".partial"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the partial copy: %v", err)
		}
	})
	t.Run("nothing is written over", func(t *testing.T) {
		if _, err := history.Copy(t.Context(), dir, copied); err == nil || !strings.Contains(err.Error(), "exists; nothing was changed") {
			t.Error(err)
		}
	})
	t.Run("a copy that was interrupted does not exist", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		to := filepath.Join(t.TempDir(), "never")
		_, err := history.Copy(ctx, dir, to)
		if _, statErr := os.Stat(to); !errors.Is(err, context.Canceled) || !errors.Is(statErr, fs.ErrNotExist) {
			t.Errorf("%v, %v", err, statErr)
		}
	})
	t.Run("damage is not copied", func(t *testing.T) {
		tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
		testkit.OK(t, err)
		data, err := os.ReadFile(tables[0])
		testkit.OK(t, err)
		data[len(data)/3] ^= 4
		testkit.OK(t, os.WriteFile(tables[0], data, 0o600))
		to := filepath.Join(t.TempDir(), "bad")
		_, err = history.Copy(t.Context(), dir, to)
		if _, statErr := os.Stat(to); !errors.Is(err, history.ErrDamaged) || !errors.Is(statErr, fs.ErrNotExist) {
			t.Errorf("%v, %v", err, statErr)
		}
	})
}
