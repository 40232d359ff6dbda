//go:build !linux

package main

import (
	"os/exec"
	"syscall"
)

// childAttributes puts a child into a process group of its own, so that Ctrl-C reaches only us and
// we stop the children in order. There is no Pdeathsig here: the closed standard input has to do.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

func spawn(cmd *exec.Cmd) error { return cmd.Start() }
