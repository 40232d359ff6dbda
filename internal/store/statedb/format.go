package statedb

import (
	"fmt"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
)

// FormatVersion of the keys and values in the database, a number that grows. A directory of another
// version is refused, whichever is newer; the first version that changes it must convert older
// ones, in checkFormat.
const FormatVersion = "4"

// pebbleFormat is Pebble's own format. It is fixed: a newer Pebble would otherwise make a directory
// unreadable for the bridge before it without a report. The changelog must mention a higher one, as
// it does a change of FormatVersion.
const pebbleFormat = pebble.FormatValueSeparation

// checkFormat refuses a database of another format, and notes ours in a new one.
func (db *DB) checkFormat() error {
	version, err := db.Get(MetaKey("format"))
	if err != nil {
		return err
	}
	if version == nil {
		db.runs.wasClean = true
		return db.set(MetaKey("format"), []byte(FormatVersion))
	}
	if string(version) == FormatVersion {
		return nil
	}
	difference := fmt.Sprintf("it has format %q, this bridge reads %q", version, FormatVersion)
	theirs, err := strconv.Atoi(string(version))
	ours, _ := strconv.Atoi(FormatVersion) // it is a number, as a test knows
	if err == nil && theirs > ours {
		return newerError(db.dir, difference)
	}
	return fmt.Errorf("state directory %s %w: %s; use the bridge that wrote it, or another "+
		"directory", db.dir, ErrForeign, difference)
}

// newerError is for a directory that a newer bridge has written.
func newerError(dir, difference string) error {
	return fmt.Errorf("state directory %s %w but of a newer one: %s; nothing was changed: continue "+
		"with the newer bridge, restore a copy from before the upgrade,"+
		" or start with an empty directory and a new snapshot", dir, ErrForeign, difference)
}
