package recipes_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// blockPatience is how long one block may take.
const blockPatience = 3 * time.Minute

// ended marks the end of what a block prints.
const ended = "--the-block-has-ended--"

// shell is one that runs block after block, as a person's terminal does.
type shell struct {
	t     *testing.T
	dir   string
	in    io.Writer
	lines chan string
	n     int
}

func newShell(t *testing.T, dir string, env []string) *shell {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	errs, err := os.Create(filepath.Join(dir, "stderr"))
	must(t, err)
	cmd.Stderr = errs
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	s := &shell{t: t, dir: dir, in: in, lines: make(chan string)}
	go func() {
		defer close(s.lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			s.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a page leaves running too
		for range s.lines {
		}
		_ = cmd.Wait()
		errs.Close()
	})
	return s
}

// run gives what the commands of a block print. A command that fails fails the test.
func (s *shell) run(text string) string {
	s.t.Helper()
	s.n++
	file := fmt.Sprintf("block-%d.sh", s.n)
	must(s.t, os.WriteFile(filepath.Join(s.dir, file), []byte("set -eo pipefail\n"+text), 0o600))
	fmt.Fprintf(s.in, ". ./%s </dev/null\necho %s\n", file, ended)
	var printed strings.Builder
	late := time.After(blockPatience)
	for {
		select {
		case line, more := <-s.lines:
			if line == ended {
				return printed.String()
			}
			if !more {
				s.t.Fatalf("a command failed:\n%s\nIt printed:\n%s\n%s",
					text, printed.String(), s.errors())
			}
			printed.WriteString(line + "\n")
		case <-late:
			s.t.Fatalf("it has not ended:\n%s\nIt printed:\n%s\n%s",
				text, printed.String(), s.errors())
		}
	}
}

// errors is what was written to standard error, and to logs.
func (s *shell) errors() string {
	var all strings.Builder
	logs, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, file := range append(logs, filepath.Join(s.dir, "stderr")) {
		b, _ := os.ReadFile(file)
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(file), b[max(0, len(b)-4000):])
	}
	return all.String()
}
