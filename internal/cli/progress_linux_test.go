package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/kubebridge/bridge/internal/testkit"
)

// TestProgressOnATerminal runs a bridge on a pseudo-terminal and looks at what is on it.
func TestProgressOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	master, terminal := openTerminal(t, 24, 100)
	var sent testkit.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&sent, master) // it ends with an error when the other end is closed
	}()
	dir := t.TempDir()
	file := filepath.Join(dir, "bridge.yaml")
	away := testkit.Address(t) // nobody listens there
	text := "informers: [{name: all, resources: [pods, secrets]}]\nsinks:\n  - {name: lake, nats: {servers: [\"nats://" + away + "\"]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{
			"run", "--config", file, "--kubeconfig", kubeconfigFile(t),
			"--state-dir", filepath.Join(dir, "state"), "--admin-address", "", "--shutdown-timeout", "100ms",
		}, nil, io.Discard, terminal)
	}()
	on := func() string { return screenOf(t, sent.String()) }
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("on the terminal:\n%s", on())
		}
	})
	testkit.Eventually(t, "its last line says where it stands", func() bool {
		lines := strings.Split(strings.TrimSpace(on()), "\n")
		last := lines[len(lines)-1]
		return strings.HasPrefix(last, "not ready | lake: 0 sent") && strings.Contains(last, "| sink lake: ")
	})
	testkit.Eventually(t, "it is drawn again", func() bool {
		return strings.Count(sent.String(), "not ready |") > 3
	})
	shown := on()
	if n := strings.Count(shown, "not ready |"); n != 1 {
		t.Errorf("the line is there %d times:\n%s", n, shown)
	}
	if !strings.Contains(shown, `msg="bridge starts"`) {
		t.Errorf("the log is not above it:\n%s", shown)
	}
	cancel(errors.New("the test is over"))
	select {
	case <-code:
	case <-time.After(30 * time.Second):
		t.Fatalf("it does not stop:\n%s", on())
	}
	if err := terminal.Close(); err != nil {
		t.Error(err)
	}
	<-read
	if left := on(); strings.Contains(left, "not ready |") || !strings.Contains(left, "bridge stopped") {
		t.Errorf("at the end there should be the log only:\n%s", left)
	}
}

// openTerminal opens a pseudo-terminal: what is written to terminal is read from master.
func openTerminal(t *testing.T, rows, columns uint16) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	var number, unlock int32
	size := [4]uint16{rows, columns}
	for _, call := range []struct {
		request uintptr
		arg     unsafe.Pointer
	}{
		{syscall.TIOCGPTN, unsafe.Pointer(&number)},
		{syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)},
		{syscall.TIOCSWINSZ, unsafe.Pointer(&size)},
	} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), call.request, uintptr(call.arg)); errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() }) // it may be closed already
	return master, terminal
}

// control matches what moves the cursor: to the first column, up some rows, and the erasing of all
// below.
var control = regexp.MustCompile("^(?:\r|\x1b\\[([0-9]+)A|\x1b\\[J)")

// screenOf is what a terminal with endless rows shows of what was sent to it.
func screenOf(t *testing.T, sent string) string {
	t.Helper()
	rows, row, column := [][]rune{nil}, 0, 0
	for sent != "" {
		if at := control.FindStringSubmatchIndex(sent); at != nil {
			switch found := sent[:at[1]]; {
			case found == "\r":
				column = 0
			case found == "\x1b[J":
				rows = append(rows[:row], rows[row][:min(column, len(rows[row]))])
			default:
				up, err := strconv.Atoi(sent[at[2]:at[3]])
				if err != nil || up > row {
					t.Errorf("%d rows up from row %d: %v", up, row, err)
					return ""
				}
				row -= up
			}
			sent = sent[at[1]:]
			continue
		}
		r := []rune(sent[:min(len(sent), 4)])[0]
		sent = sent[len(string(r)):]
		if r == '\n' { // the terminal driver puts a \r before it
			if row++; row == len(rows) {
				rows = append(rows, nil)
			}
			continue
		}
		if r == '\x1b' && len(sent) < 8 {
			break // the rest of it comes
		}
		if r == '\x1b' {
			t.Errorf("a control sequence that this test does not know: %q", sent[:min(len(sent), 8)])
			return ""
		}
		rows[row] = append(rows[row][:min(column, len(rows[row]))], r)
		column++
	}
	var out strings.Builder
	for _, line := range rows {
		out.WriteString(string(line) + "\n")
	}
	return out.String()
}
