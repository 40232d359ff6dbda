package harness

import (
	"os/exec"
	"runtime"
	"syscall"
)

// childAttributes puts a child into a process group of its own, and has the kernel kill it when we
// are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// spawn starts a child from a thread that lives as long as we do: the kernel takes the end of the
// thread that started a child for the end of the parent (golang/go#27505), and Go may end the one
// that a goroutine happens to run on.
func spawn(cmd *exec.Cmd) error {
	result := make(chan error)
	spawnRequests <- func() { result <- cmd.Start() }
	return <-result
}

var spawnRequests = func() chan<- func() {
	requests := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range requests {
			start()
		}
	}()
	return requests
}()
