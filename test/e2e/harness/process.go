package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Process is a program that was started. Its methods may be called concurrently.
type Process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and all its output was read
}

// startProcess starts a program in a process group of its own: Ctrl-C on a terminal reaches us
// only, and we stop it in order.
func startProcess(name string, cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = childAttributes()
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	return p, nil
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Ended is closed when the process has ended and all its output was read.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running reports whether it has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Wait waits for the end and gives the exit code, -1 when a signal ended it.
func (p *Process) Wait(ctx context.Context) (exitCode int, err error) {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s (pid %d) has not ended: %w", p.name, p.Pid(), context.Cause(ctx))
	}
}

// Signal sends a signal. One that has ended already is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// Stop sends SIGTERM and waits for the end. When ctx ends before, the process is killed.
func (p *Process) Stop(ctx context.Context) (exitCode int, err error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	code, err := p.Wait(ctx)
	if err != nil {
		p.Kill()
	}
	return code, err
}

// Kill ends the process as kill -9 does, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // fails only for one that is not ours
	<-p.ended
}
