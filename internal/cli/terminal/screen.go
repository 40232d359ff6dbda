package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kubebridge/bridge/internal/sinks/source"
)

// Screen is a terminal whose last lines are redrawn. What is written to it comes above them. Its
// methods may be called concurrently.
type Screen struct {
	file *os.File

	mu    sync.Mutex // guards all below, and writes to file
	lines []string   // drawn last, below everything that was written
	open  bool       // the text written last has no end of line yet: nothing may be drawn below it
}

// NewScreen returns the screen of a terminal, with nothing drawn on it.
func NewScreen(file *os.File) *Screen { return &Screen{file: file} }

// AsScreen returns the terminal on which progress can be shown; nil for none: w is no terminal, or
// it can't move its cursor.
func AsScreen(w io.Writer) *Screen {
	file, ok := w.(*os.File)
	if !ok || !Is(w) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return NewScreen(file)
}

// Write writes text above the lines that are redrawn.
func (s *Screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out bytes.Buffer
	s.erase(&out)
	out.Write(text)
	s.open = !bytes.HasSuffix(text, []byte("\n"))
	s.draw(&out)
	if _, err := out.WriteTo(s.file); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Show replaces the lines that are redrawn. They are cut to the width of the terminal: a line that
// wraps would take two rows, and erase counts one for each.
func (s *Screen) Show(lines []string) {
	width, _ := s.Size()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out bytes.Buffer
	s.erase(&out)
	s.lines = s.lines[:0]
	for _, line := range lines {
		s.lines = append(s.lines, Cut(Plain(line), width-1))
	}
	s.draw(&out)
	_, _ = out.WriteTo(s.file) // without a terminal nobody looks
}

// Size returns the columns and rows of the terminal.
func (s *Screen) Size() (width, height int) {
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil || width < 20 || height < 4 {
		return 80, 24
	}
	return width, height
}

// erase takes off the lines that were drawn. The cursor is at the end of the last one.
func (s *Screen) erase(out *bytes.Buffer) {
	if s.open || len(s.lines) == 0 {
		return
	}
	out.WriteByte('\r')
	if up := len(s.lines) - 1; up > 0 {
		fmt.Fprintf(out, "\x1b[%dA", up)
	}
	out.WriteString("\x1b[J")
}

func (s *Screen) draw(out *bytes.Buffer) {
	if s.open {
		return
	}
	for i, line := range s.lines {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString(line)
	}
}

// Cut shortens a line to a number of columns.
func Cut(line string, width int) string {
	runes := []rune(line)
	if len(runes) <= width {
		return line
	}
	return string(runes[:width-1]) + "…"
}

// Is reports whether what is written to w comes onto a terminal.
func Is(w io.Writer) bool {
	if s, ok := w.(*Screen); ok {
		w = s.file
	}
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Bar is one line on a terminal, written again and again.
type Bar struct {
	out         io.Writer
	of          string // what is counted
	began, last time.Time
	shown       bool
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond
)

// NewBar returns the bar of a command that writes to w; nil where w is no terminal.
func NewBar(w io.Writer, of string) *Bar {
	if !Is(w) {
		return nil
	}
	return &Bar{out: w, of: of, began: time.Now()}
}

// Show draws the bar, and how much was read in which time.
func (b *Bar) Show(messages int, p source.Progress) {
	now := time.Now()
	if now.Sub(b.last) < barEvery {
		return
	}
	b.last, b.shown = now, true
	rate := float64(messages) / max(now.Sub(b.began).Seconds(), 0.001)
	line := fmt.Sprintf("%s %s, %s/s", Thousands(messages), b.of, Thousands(int(rate)))
	if p.Total > 0 {
		done := min(float64(p.Read)/float64(p.Total), 1)
		full := int(done * barWidth)
		left := time.Duration(now.Sub(b.began).Seconds() * (1 - done) / max(done,
			0.001) * float64(time.Second))
		line = fmt.Sprintf("[%s%s] %3.0f%%  %s, %s left", strings.Repeat("=", full),
			strings.Repeat(" ", barWidth-full), 100*done, line, left.Round(time.Second))
	}
	fmt.Fprintf(b.out, "\r%s\x1b[K", line) // to the end of the line
}

// Clear takes the bar away. That of nil does nothing.
func (b *Bar) Clear() {
	if b != nil && b.shown {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
