package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/store"
	"github.com/kubebridge/bridge/internal/store/statedb"
	"github.com/kubebridge/bridge/internal/testkit"
)

// marker is the file by which Pebble knows its format; a new directory has this one.
const marker = "marker.format-version.000011.024"

// The state of another format is refused, and left as it is.
func TestOtherFormat(t *testing.T) {
	newer, err := strconv.Atoi(statedb.FormatVersion)
	testkit.OK(t, err)
	for _, c := range []struct{ format, want string }{
		{strconv.Itoa(newer + 1), "of a newer one: it has format \"" + strconv.Itoa(newer+1) + "\""},
		{"100", "of a newer one: it has format"},
		{"0", "is not one of this version of the bridge: it has format \"0\""},
		{"nonsense", "is not one of this version of the bridge: it has format \"nonsense\""},
	} {
		dir := t.TempDir()
		testkit.OK(t, leaveState(t, dir).Close())
		overwrite(t, dir, "Mformat", c.format)
		db, err := store.Open(statedb.Options{Dir: dir})
		if db != nil || !errors.Is(err, statedb.ErrForeign) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("format %s: Open: %v, want ErrForeign: %s", c.format, err, c.want)
		}
		overwrite(t, dir, "Mformat", statedb.FormatVersion)
		if err := openDB(t, dir).Database().Identity().BindCluster("cluster-2"); !errors.Is(err, statedb.ErrOtherCluster) {
			t.Errorf("format %s: what was there is gone: %v", c.format, err)
		}
	}
}

// A directory without indexes becomes one of ours, which a bridge without them does not write to.
func TestFormatWithoutIndexes(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, leaveState(t, dir).Close())
	overwrite(t, dir, "Mformat", "5")
	format, err := openDB(t, dir).Database().Get(statedb.MetaKey("format"))
	testkit.OK(t, err)
	if string(format) != statedb.FormatVersion {
		t.Errorf("it has format %s", format)
	}
}

// What a newer Pebble has written, ours can't read. It must not be taken for damage, whose remedies
// would lose it.
func TestNewerPebble(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, leaveState(t, dir).Close())
	testkit.OK(t, os.Rename(filepath.Join(dir, marker), filepath.Join(dir, strings.TrimSuffix(marker, "024")+"999")))
	before := contents(t, dir)
	if _, err := store.Open(statedb.Options{Dir: dir}); !errors.Is(err, statedb.ErrForeign) || !strings.Contains(err.Error(), "of a newer one") {
		t.Errorf("Open: %v, want ErrForeign: of a newer one", err)
	}
	if contents(t, dir) != before {
		t.Error("the directory was changed")
	}
}

// A bridge with a newer Pebble writes what the one before can read, until somebody decides
// otherwise: fails when an update of the library has raised its format in silence.
func TestPebbleFormat(t *testing.T) {
	dir := t.TempDir()
	testkit.OK(t, leaveState(t, dir).Close())
	if _, err := os.Stat(filepath.Join(dir, marker)); err != nil {
		found, _ := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
		t.Errorf("%v; there is %v", err, found)
	}
}
