package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/sinks/source"
)

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
	line := fmt.Sprintf("%s %s, %s/s", Thousands(messages), b.of,
		Thousands(int(rate)))
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
