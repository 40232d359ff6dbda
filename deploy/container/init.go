//go:build linux

package container

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Init is what the second start does: where it was not asked for, it returns at once; else it
// becomes the program, or ends with exit code 125.
func Init() {
	text := os.Getenv(variable)
	if text == "" {
		return
	}
	runtime.LockOSThread()
	var spec Spec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = spec.enter()
	}
	fmt.Fprintln(os.Stderr, "container:", err)
	os.Exit(125)
}

// enter makes the mounts, gives up all privileges, and becomes the program.
func (s *Spec) enter() error {
	if err := s.mount(); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"set the host's name", s.setHostname},
		{"change root", func() error { return syscall.Chroot(s.Root) }},
		{"change directory", func() error { return os.Chdir(s.Dir) }},
		{"allow no new privileges", noNewPrivileges},
		{"set groups", func() error { return syscall.Setgroups(s.Groups) }},
		{"set group", func() error { return syscall.Setgid(s.GID) }},
		// which gives up the capabilities as well
		{"set user", func() error { return syscall.Setuid(s.UID) }},
		{"run " + s.Args[0], func() error { return syscall.Exec(s.Args[0], s.Args, s.Env) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func (s *Spec) setHostname() error {
	if s.Hostname == "" {
		return nil
	}
	return syscall.Sethostname([]byte(s.Hostname))
}

func (s *Spec) mount() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := bind(s.Root, s.Root, false); err != nil {
		return err
	}
	proc := filepath.Join(s.Root, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("proc", proc, "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC,
		""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, m := range s.Mounts {
		target := filepath.Join(s.Root, m.Target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := bind(m.Source, target, m.ReadOnly); err != nil {
			return err
		}
	}
	if s.ReadOnlyRoot {
		return remountReadOnly(s.Root)
	}
	return nil
}

func bind(source, target string, readOnly bool) error {
	if err := syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	if readOnly {
		return remountReadOnly(target)
	}
	return nil
}

func remountReadOnly(target string) error {
	if err := syscall.Mount("", target, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

const prSetNoNewPrivs = 38

// noNewPrivileges is of this thread, the one that becomes the program.
func noNewPrivileges() error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
