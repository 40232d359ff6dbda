//go:build linux

package container

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// variable marks the second start of the program, and says what it has to do.
const variable = "BRIDGE_CONTAINER_SPEC"

// ErrNotRoot says that this user can't make mounts.
var ErrNotRoot = errors.New("containers need root")

// Spec says what runs, and in what.
type Spec struct {
	Hostname     string // "" for that of the machine
	Root         string // directory of the root file system; missing mount points are made in it
	ReadOnlyRoot bool
	Mounts       []Mount
	Args         []string // the path of the program inside, and its arguments
	Env          []string
	Dir          string // inside
	UID, GID     int
	Groups       []int // beside GID
}

// Mount is a directory of the host inside a container.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Command prepares a container; the caller starts it, and stops it by signals.
func Command(spec *Spec) (*exec.Cmd, error) {
	if os.Geteuid() != 0 {
		return nil, ErrNotRoot
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self) //nolint:noctx // it is stopped by signals
	cmd.Env = []string{variable + "=" + string(text)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
	}
	return cmd, nil
}
