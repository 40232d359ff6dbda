package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/disk"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// leaveTables leaves a database whose list of files was changed several times.
func leaveTables(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tables") //nolint:usetesting // what a damaged database still writes when the test ends would fail it
	testkit.OK(t, err)
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	db, err := store.Open(statedb.Options{Dir: dir, MemTableBytes: 64 << 10})
	testkit.OK(t, err)
	ix := newIndexer(t, db)
	for i := range 20 {
		settled := map[resource.Key]store.NewState{}
		for j := range 10 {
			name := fmt.Sprint("p", 10*i+j)
			obj := pod(t, name, fmt.Sprint(100+10*i+j), fmt.Sprintf(`,"x":"%x"`, noise(10*i+j)))
			settled[resource.Key("shop/"+name)] = live(obj, uint64(10*i+j+1))
		}
		settle(t, db, ix, "", settled)
	}
	testkit.OK(t, db.Close())
	return dir
}

// copyOf is a directory with the same files.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	again := filepath.Join(t.TempDir(), "db")
	testkit.OK(t, os.CopyFS(again, os.DirFS(dir)))
	return again
}

func theManifest(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no MANIFEST: %v", err)
	}
	return found[len(found)-1]
}

func count(t *testing.T, dir string) (n int, err error) {
	t.Helper()
	db, err := store.Open(statedb.Options{Dir: dir})
	if err != nil {
		return 0, err
	}
	defer func() { testkit.OK(t, db.Close()) }()
	return len(keys(t, newIndexer(t, db))), nil
}

// A manifest that lost what was written is refused, and left as it is.
func TestManifestShortened(t *testing.T) {
	left := leaveTables(t)
	manifest, err := os.ReadFile(theManifest(t, left))
	testkit.OK(t, err)
	if n, err := count(t, copyOf(t, left)); err != nil || n != 200 {
		t.Fatalf("what was left has %d objects, %v", n, err)
	}
	harm := map[string]func(data []byte) []byte{"cut off": func(data []byte) []byte { return data[:len(data)-1] }}
	for i := range 40 {
		at := len(manifest) * i / 40
		harm[fmt.Sprint("a flipped bit at ", at)] = func(data []byte) []byte {
			data[at] ^= 1 << (i % 8)
			return data
		}
	}
	harm["zeros at the end"] = func(data []byte) []byte { clear(data[len(data)-20:]); return data }
	harm["nothing"] = func([]byte) []byte { return nil }
	harm["an older copy"] = func(data []byte) []byte { return data[:len(data)*3/4] }
	for name, damage := range harm {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, left)
			file := theManifest(t, dir)
			data, err := os.ReadFile(file)
			testkit.OK(t, err)
			testkit.OK(t, os.WriteFile(file, damage(data), 0o600))
			before := contents(t, dir)
			for what, open := range map[string]func() error{
				"Open":    func() error { _, err := count(t, dir); return err },
				"Inspect": func() error { _, err := store.Inspect(statedb.Options{Dir: dir}); return err },
				"Reset":   func() error { return store.Reset(statedb.Options{Dir: dir}, "all/pods", false) },
			} {
				if err := open(); err == nil || !strings.Contains(err.Error(), "restore it from a copy, or move it away") {
					t.Errorf("%s: %v, want what to do", what, err)
				}
			}
			if contents(t, dir) != before {
				t.Error("the directory was changed")
			}
		})
	}
}

// A manifest that a crash has cut off is not taken for damaged.
func TestManifestCutByCrash(t *testing.T) {
	left := leaveTables(t)
	for name, after := range map[string][]byte{"nothing": nil, "half a record": []byte("\x01\x02\x03\x04\x40\x00\x01torn"), "zeros": make([]byte, 4096)} {
		dir := copyOf(t, left)
		file := theManifest(t, dir)
		data, err := os.ReadFile(file)
		testkit.OK(t, err)
		testkit.OK(t, os.WriteFile(file, append(bytes.Clone(data), after...), 0o600))
		if n, err := count(t, dir); err != nil || n != 200 {
			t.Errorf("%s behind what was synced: %d objects, %v", name, n, err)
		}
	}
}

// A manifest whose length was not recorded is accepted as it is.
func TestManifestWithoutLength(t *testing.T) {
	left := leaveTables(t)
	for name, harm := range map[string]func(file string) error{
		"none": os.Remove,
		"garbage": func(file string) error {
			return os.WriteFile(file, []byte("MANIFEST-000001 99999999999999999999"), 0o600)
		},
	} {
		dir := copyOf(t, left)
		testkit.OK(t, harm(filepath.Join(dir, disk.SumsFile)))
		if n, err := count(t, dir); err != nil || n != 200 {
			t.Errorf("%s: %d objects, %v", name, n, err)
		}
	}
}

// An error of a damaged manifest says what is damaged.
func TestManifestDamage(t *testing.T) {
	dir := leaveTables(t)
	file := theManifest(t, dir)
	data, err := os.ReadFile(file)
	testkit.OK(t, err)
	data[len(data)/2] ^= 1
	testkit.OK(t, os.WriteFile(file, data, 0o600))
	_, err = count(t, dir)
	if !errors.Is(err, statedb.ErrDamaged) || !strings.Contains(err.Error(), filepath.Base(file)) || strings.Count(err.Error(), "state directory") > 2 {
		t.Errorf("Open: %v", err)
	}
	t.Log(err)
}
