package statedb_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

func open(t *testing.T, dir string) *statedb.DB {
	t.Helper()
	db, err := statedb.Open(statedb.Options{Dir: dir})
	testkit.OK(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A directory in use is refused.
func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := statedb.Open(statedb.Options{Dir: dir}); !errors.Is(err, statedb.ErrInUse) {
		t.Errorf("Open: %v, want ErrInUse", err)
	}
}

// A directory of something else is refused.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, os.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("precious"), 0o600))
	if _, err := statedb.Open(statedb.Options{Dir: dir}); !errors.Is(err, statedb.ErrForeign) {
		t.Errorf("Open: %v, want ErrForeign", err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		t.Errorf("it left %d files there", len(entries))
	}
}

// The state of another cluster is refused.
func TestStateOfOtherCluster(t *testing.T) {
	db := open(t, t.TempDir())
	testkit.OK(t, db.Identity().BindCluster("one"))
	testkit.OK(t, db.Identity().BindCluster("one"))
	testkit.OK(t, db.Identity().BindCluster(""))
	if err := db.Identity().BindCluster("two"); !errors.Is(err, statedb.ErrOtherCluster) || !strings.Contains(err.Error(), "state.dir") {
		t.Errorf("BindCluster: %v, want ErrOtherCluster and what to do", err)
	}
}

// The secret of a directory stays the same.
func TestDirectorySecret(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	first, err := db.Identity().Secret()
	testkit.OK(t, err)
	testkit.OK(t, db.Close())
	second, err := open(t, dir).Identity().Secret()
	testkit.OK(t, err)
	if len(first) != 32 || string(first) != string(second) {
		t.Errorf("%x, then %x", first, second)
	}
}
