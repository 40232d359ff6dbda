package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
)

// ErrAccess reports that other users may have written to a directory, or may read it.
var ErrAccess = errors.New("is not protected from other users")

// ProtectDir checks the directory of a database: its owner is this user or root, a link to it is
// not another user's, and no other user may use it. It tightens the mode where it may, and logs
// that; the rest is refused with the command that corrects it. A directory of root may be open to a
// group, as Kubernetes makes volumes. Call it when it is known that the directory is a database's.
func ProtectDir(dir string, log *slog.Logger) error {
	user := uint32(os.Geteuid())
	link, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner := ownerOf(link); link.Mode()&fs.ModeSymlink != 0 && owner != user && owner != 0 {
		return fmt.Errorf("%w: it is a link of user %d: rm %q, or name the directory itself",
			ErrAccess, owner, dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner := ownerOf(info)
	const group, others = fs.FileMode(0o070), fs.FileMode(0o007)
	mode := info.Mode().Perm()
	switch {
	case owner != user && owner != 0:
		return fmt.Errorf("%w: it belongs to user %d, and this is user %d: chown -R %d %q",
			ErrAccess, owner, user, user, dir)
	case mode&(group|others) == 0 || owner != user && mode&others == 0:
		return nil
	}
	if err := os.Chmod(dir, mode&^(group|others)); err != nil {
		return fmt.Errorf("%w: its mode is %04o: chmod go-rwx %q (%w)", ErrAccess, mode, dir, err)
	}
	level := slog.LevelInfo // Kubernetes opens what is in a volume to the group at each start
	if mode&others != 0 {
		level = slog.LevelWarn
	}
	log.Log(context.Background(), level,
		"other users could use a directory of the bridge; its mode is tightened, as by chmod go-rwx",
		"dir", dir, "mode", fmt.Sprintf("%04o", mode))
	return nil
}

func ownerOf(info fs.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return uint32(os.Geteuid())
}
