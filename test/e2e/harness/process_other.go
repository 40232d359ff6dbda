//go:build !linux

package harness

import (
	"os/exec"
	"syscall"
)

// childAttributes puts a child into a process group of its own.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func spawn(cmd *exec.Cmd) error { return cmd.Start() }
