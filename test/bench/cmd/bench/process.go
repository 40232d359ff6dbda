package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that runs, and what it costs.
type process struct {
	cmd   *exec.Cmd
	began time.Time
	log   *os.File
	ended chan error
}

// start runs a program; what it writes goes to a file in dir.
func start(ctx context.Context, dir, name string, args ...string) (*process, error) {
	logFile, err := os.Create(filepath.Join(dir, filepath.Base(name)+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, name, args...), log: logFile, ended: make(chan error, 1)}
	p.cmd.Stdout, p.cmd.Stderr = logFile, logFile
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p, nil
}

// startServer runs a program that prints its address, and waits for that.
func startServer(ctx context.Context, dir, name string, args ...string) (*process, string, error) {
	p, err := start(ctx, dir, name, args...)
	if err != nil {
		return nil, "", err
	}
	for range 600 {
		if line, err := firstLine(p.log.Name()); err == nil && line != "" {
			return p, line, nil
		}
		select {
		case err := <-p.ended:
			return nil, "", fmt.Errorf("%s ended: %w", name, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil, "", fmt.Errorf("%s does not say where it listens", name)
}

func firstLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	return strings.TrimSpace(line), err
}

// stop asks the process to end, and waits.
func (p *process) stop() error {
	defer p.log.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		if _, killed := errors.AsType[*exec.ExitError](err); killed {
			return nil // whoever handles no signal is ended by it
		}
		return err
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("%s does not stop", p.cmd.Path), p.cmd.Process.Kill())
	}
}

// cpu is the processor time that it has used, in user and kernel mode, to 10 ms.
func (p *process) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after) // from the third on
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// switches is how often its threads that live were taken off a core, or waited.
func (p *process) switches() (n int64) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			if strings.HasSuffix(name, "voluntary_ctxt_switches") {
				count, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				n += count
			}
		}
	}
	return n
}

// memory is what is resident now, and at most so far, in bytes.
func (p *process) memory() (now, peak int64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			peak = kib << 10
		}
	}
	return now, peak
}
