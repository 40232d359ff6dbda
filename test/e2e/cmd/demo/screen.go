package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Colours, as terminals know them.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// screen is what we write on. Its methods may be called concurrently; each writes whole lines.
type screen struct {
	colors   bool
	terminal bool
	width    int // of the terminal; large where there is none

	mu  sync.Mutex
	out *os.File // guarded by mu
}

func newScreen(out *os.File, noColor bool) *screen {
	s := &screen{out: out, terminal: term.IsTerminal(int(out.Fd())), width: 1000}
	s.colors = s.terminal && !noColor && os.Getenv("NO_COLOR") == ""
	if width, _, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
		s.width = width
	}
	return s
}

// paint gives a text its colour.
func (s *screen) paint(color, text string) string {
	if !s.colors || color == plain {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *screen) title(text string) { s.line("%s\n", s.paint(bold, text)) }

// headline says what happens next, with a line of its own before it.
func (s *screen) headline(format string, args ...any) {
	s.line("\n%s", s.paint(bold, fmt.Sprintf(format, args...)))
}

func (s *screen) failed(err error) { s.line("%s %v", s.paint(red, "demo:"), err) }

// step does something that takes a while, and says so before, while, and after. do may report how
// far it is.
func (s *screen) step(what string, do func(progress func(string)) error) error {
	began := time.Now()
	if s.terminal {
		s.write("  … %s", what)
	} else {
		s.line("  %s", what)
	}
	printed := began
	err := do(func(far string) {
		took := time.Since(began).Round(time.Second)
		switch {
		case s.terminal:
			s.write("\r\x1b[K  … %s: %s, %v", cut(what, s.width-45), far, took)
		case time.Since(printed) > 15*time.Second:
			printed = time.Now()
			s.line("    %s, %v", far, took)
		}
	})
	if s.terminal {
		s.write("\r\x1b[K")
	}
	took := fmt.Sprintf("%.1f s", time.Since(began).Seconds())
	switch {
	case err != nil:
		s.line("  %s %s", s.paint(red, "✗"), what)
	case s.terminal:
		s.line("  %s %s %s", s.paint(green, "✓"), what, s.paint(dim, took))
	default:
		s.line("    %s", took)
	}
	return err
}

// write writes a part of a line.
func (s *screen) write(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format, args...)
}

// cut shortens a text to n characters.
func cut(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n || n < 2 {
		return text
	}
	return string(runes[:n-1]) + "…"
}
