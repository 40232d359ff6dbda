package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one component in a child process. It is started and stopped under the supervisor's
// lock.
//
// Nothing may be left behind when we end, so a child ends when its standard input is closed: we
// hold the other end of that pipe, and the kernel closes it whatever becomes of us. On Linux the
// kernel also kills it (process_linux.go).
type process struct {
	name    string
	args    []string
	logFile string
	failed  chan<- error // receives the reason when the child ends without being asked to

	// fallen, when not nil, gets each end that nobody asked for, instead of failed: the
	// supervisor starts it again.
	fallen chan<- *process

	cmd      *exec.Cmd
	stdin    io.Closer
	ended    chan struct{} // closed when the child has ended; nil before the first start
	stopping *atomic.Bool  // of this child: set before it is asked to end
}

func (p *process) start() error {
	if p.running() {
		return nil
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close() // the child has its own copy
	fmt.Fprintf(log, "--- %s started %s\n", p.name, time.Now().Format(time.RFC3339Nano))
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	cmd := exec.Command(self, append([]string{componentCommand, p.name}, p.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.stdin, p.ended, p.stopping = cmd, stdin, make(chan struct{}), new(atomic.Bool)
	go p.reap(cmd, p.ended, p.stopping)
	return nil
}

// reap waits for the child's end, and calls the supervisor if nobody asked for it.
func (p *process) reap(cmd *exec.Cmd, ended chan<- struct{}, stopping *atomic.Bool) {
	err := cmd.Wait()
	close(ended)
	if stopping.Load() {
		return
	}
	if p.fallen != nil {
		p.fallen <- p
		return
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	select {
	case p.failed <- fmt.Errorf("%s ended by itself, see %s: %w", p.name, p.logFile, err):
	default: // another one's end is being dealt with already
	}
}

// stop sends the signal and waits for the end; after the grace period it kills. It is a no-op on a
// stopped child.
func (p *process) stop(signal syscall.Signal, grace time.Duration) {
	if !p.running() {
		return
	}
	p.signal(signal)
	select {
	case <-p.ended:
	case <-time.After(grace):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
	_ = p.stdin.Close()
}

// signal is the first half of stop, for stopping several children side by side.
func (p *process) signal(signal syscall.Signal) {
	if p.running() {
		p.stopping.Store(true)
		_ = p.cmd.Process.Signal(signal) // fails only when it has ended just now
	}
}

func (p *process) running() bool {
	if p.ended == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// pid is 0 when the child is not running.
func (p *process) pid() int {
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// exited is closed when the child ends; nil, which blocks forever, if it was never started.
func (p *process) exited() <-chan struct{} { return p.ended }

// poll calls check until it returns nil. It gives up with the last error when ctx is done, or when
// p has ended.
func (p *process) poll(ctx context.Context, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s not ready, see %s: %w; last answer: %w", p.name, p.logFile, context.Cause(ctx), err)
		case <-p.exited():
			return fmt.Errorf("%s ended while starting, see %s", p.name, p.logFile)
		case <-time.After(pollInterval):
		}
	}
}

// pollInterval is short because it is a part of every start, and a probe costs the API server next
// to nothing.
const pollInterval = 50 * time.Millisecond
