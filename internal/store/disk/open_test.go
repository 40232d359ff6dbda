package disk_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/store/disk"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A directory that other users can use is tightened, and the log says so.
func TestProtectDirTightens(t *testing.T) {
	for mode, level := range map[os.FileMode]string{0o755: "WARN", 0o707: "WARN", 0o770: "INFO", 0o700: ""} {
		dir := filepath.Join(t.TempDir(), "d")
		testkit.OK(t, os.Mkdir(dir, 0o700))
		testkit.OK(t, os.Chmod(dir, mode))
		link := filepath.Join(t.TempDir(), "link") // of this user
		testkit.OK(t, os.Symlink(dir, link))
		var log bytes.Buffer
		testkit.OK(t, disk.ProtectDir(link, slog.New(slog.NewTextHandler(&log, nil))))
		info, err := os.Stat(dir)
		testkit.OK(t, err)
		if info.Mode().Perm() != 0o700 {
			t.Errorf("mode %v, was %v", info.Mode(), mode)
		}
		if said := strings.Contains(log.String(), "level="+level) && strings.Contains(log.String(), "chmod go-rwx"); said != (level != "") {
			t.Errorf("mode %v: %q", mode, &log)
		}
	}
}

// A directory or a link of another user is refused with the command that corrects it.
func TestProtectDirOfOther(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	log := slog.New(slog.DiscardHandler)
	dir := filepath.Join(t.TempDir(), "d")
	testkit.OK(t, os.Mkdir(dir, 0o700))
	link := filepath.Join(t.TempDir(), "link")
	testkit.OK(t, os.Symlink(dir, link))
	testkit.OK(t, os.Lchown(link, 4711, -1))
	if err := disk.ProtectDir(link, log); !errors.Is(err, disk.ErrAccess) || !strings.Contains(err.Error(), "rm ") {
		t.Error(err)
	}
	testkit.OK(t, os.Chown(dir, 4711, -1))
	if err := disk.ProtectDir(dir, log); !errors.Is(err, disk.ErrAccess) || !strings.Contains(err.Error(), "chown -R 0 ") {
		t.Error(err)
	}
}
